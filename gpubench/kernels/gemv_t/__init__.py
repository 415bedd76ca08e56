"""Transposed matrix times vector, y = Aᵀ·x, from the columns of the same A."""
