"""Secure aggregation: the server learns means of answers, and no single answer."""
