"""Natural and medical images to classify."""
