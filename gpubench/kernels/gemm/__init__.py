"""Matrix products, C = A·B."""
