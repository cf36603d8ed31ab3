"""Encoders that make maps of features, and their decoders."""
