"""Runs and comparisons from Python, in scripts and in notebooks."""
