"""Secure aggregation: the server learns means of answers, but no single answer."""
