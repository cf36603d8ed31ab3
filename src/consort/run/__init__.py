"""Rounds 1 to R of one algorithm on one federation, written to a folder and resumable."""
