"""Using a trained model: taking it out of a run, enrolling a person, verifying a signature."""
