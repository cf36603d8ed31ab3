"""Federated learning for clients that are unlike: in data, in model architecture, in tasks."""

__version__ = "0.1.0"
