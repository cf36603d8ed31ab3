"""Engines: how calls reach clients."""
