"""The clients of a federation, which of them take part in a round, and protections."""
