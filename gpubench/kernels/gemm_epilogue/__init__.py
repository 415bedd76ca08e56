"""Matrix products with a bias, activation and residual, C = act(A·B + bias) + residual."""
