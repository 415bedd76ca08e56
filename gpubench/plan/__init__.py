"""What to run: ranges, flags and files, kernels, points."""
