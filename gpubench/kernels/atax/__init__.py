"""A product and its transposed one, c = Aᵀ·(A·v): PolyBench calls the pair atax."""
