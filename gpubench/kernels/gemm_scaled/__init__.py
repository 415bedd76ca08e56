"""Products of blocks of elements with a scale for each block."""
