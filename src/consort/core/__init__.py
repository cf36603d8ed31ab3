"""What server and clients share: parameters, messages, algorithms as values."""
