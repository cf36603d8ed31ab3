"""Pure functions that turn what clients sent into weights, directions and means."""
