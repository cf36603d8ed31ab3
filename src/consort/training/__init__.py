"""Training and evaluation on one client: its data and model, local training, scoring."""
