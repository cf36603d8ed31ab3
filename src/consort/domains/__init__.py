"""Domains of data, each a plug-in: its loaders, generated data, tasks, models and metrics."""
