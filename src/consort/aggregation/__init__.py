"""Pure functions that compute weights, directions and means from the answers of clients."""
