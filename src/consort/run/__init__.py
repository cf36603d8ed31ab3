"""Runs: rounds, their schedule, the history of results, and observers."""
