"""Handwritten signatures: reading, cleaning, balancing and varying them."""
