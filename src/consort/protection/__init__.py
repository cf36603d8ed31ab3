"""Protections around any algorithm: differential privacy, secure aggregation, robust rules."""
