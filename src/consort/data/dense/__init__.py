"""Images with an answer for every pixel."""
