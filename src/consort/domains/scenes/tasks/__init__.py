"""Dense tasks, which have a target for every pixel."""
