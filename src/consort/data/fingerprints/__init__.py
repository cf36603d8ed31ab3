"""Fingerprints: reading, scaling and pairing them."""
