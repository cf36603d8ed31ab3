"""Experiment trackers as observers; each is an optional package, and works offline."""
