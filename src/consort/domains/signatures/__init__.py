"""Handwritten signatures: reading, cleaning, balancing, augmenting and verifying them."""
