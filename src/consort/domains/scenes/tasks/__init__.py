"""Tasks with an answer for every pixel."""
