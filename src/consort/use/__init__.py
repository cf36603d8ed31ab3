"""Using a trained model: exporting it from a run, enrolling users, verifying signatures."""
