"""From a recipe to runs: reading, checking, allocating data to clients, assembling."""
