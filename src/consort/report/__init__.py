"""Reports on runs and federations: one HTML file each, which works without a network."""
