"""A product, and one with the transposed matrix: c = Aᵀ·(A·v). PolyBench calls the pair atax."""
