"""Fingerprints of fingers that do not exist, on several sensors."""
