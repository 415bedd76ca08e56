"""Has the variants, in one folder per operation.

A variant is a `.py` file. A CUDA variant also has a `.cu` file.
"""
