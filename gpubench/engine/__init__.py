"""How a point is run: operands, verifying, sampling, a whole sweep."""
