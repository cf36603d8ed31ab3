"""Images generated from a seed: the same kinds of tasks as the real sets, without files."""
