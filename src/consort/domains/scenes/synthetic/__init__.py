"""Synthetic images of furnished rooms, with exact targets for every pixel."""
