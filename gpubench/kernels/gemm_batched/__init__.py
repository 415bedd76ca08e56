"""Products of many pairs of matrices in one launch."""
