"""What keeps clients' data to themselves, and what does not."""
