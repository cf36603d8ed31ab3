"""Metrics of dense (per-pixel) tasks."""
