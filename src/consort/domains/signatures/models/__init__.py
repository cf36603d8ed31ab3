"""Encoders for signatures."""
