"""What happens on a client: its data and model during one call, local training, scoring."""
