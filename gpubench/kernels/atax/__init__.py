"""A product, then a product with the transposed matrix: c = Aᵀ·(A·v), PolyBench's atax."""
