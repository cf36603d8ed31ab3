"""Synthetic signatures and forgeries."""
