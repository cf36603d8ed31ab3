"""Synthetic images generated from a seed: the same tasks as real data sets, without files."""
