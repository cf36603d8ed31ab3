"""Signatures and forgeries of users that do not exist."""
