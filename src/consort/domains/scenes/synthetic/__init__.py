"""Furnished rooms generated from a seed, with exact answers for every pixel."""
