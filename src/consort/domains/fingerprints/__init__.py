"""Pairs of fingerprints: reading, scaling, pairing, matching and obfuscating them."""
