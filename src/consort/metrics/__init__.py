"""Metrics as pure functions of scores and features."""
