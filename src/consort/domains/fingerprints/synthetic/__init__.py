"""Synthetic fingerprints, taken by several sensors."""
