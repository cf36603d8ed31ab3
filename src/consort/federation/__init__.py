"""Who the clients are, and which of them take part in a round."""
