"""Models: encoders, and the model that puts one head per task on an encoder."""
