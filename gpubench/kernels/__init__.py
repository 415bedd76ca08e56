"""The variants: a folder per operation. A variant is a `.py` and, for CUDA, a `.cu`."""
