"""Metrics of tasks with an answer for every pixel."""
