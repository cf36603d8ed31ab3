"""Vectors to classify, for tiny models and very many clients."""
