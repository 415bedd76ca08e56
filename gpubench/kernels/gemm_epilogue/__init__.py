"""Matrix products and what follows them in a model, C = act(A·B + bias) + residual."""
