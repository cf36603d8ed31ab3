"""Data sets, real and synthetic, and the ways to cut them into clients."""
