"""Encoders made for signatures."""
