"""Encoders that return feature maps, and their decoders."""
