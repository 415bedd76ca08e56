"""Products of groups of rows, each group with a matrix of its own."""
