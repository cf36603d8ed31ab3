"""Models: encoders, and `MultiTaskModel`, which combines an encoder with one head per task."""
