"""Data made in memory from a seed: the same kinds of tasks as the real sets, without files."""
