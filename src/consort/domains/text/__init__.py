"""Texts to classify."""
