"""The variants: per operation a folder, per variant a `.py` and, for CUDA, a `.cu`."""
