"""Pages about runs and federations: one HTML file each, which needs no network."""
