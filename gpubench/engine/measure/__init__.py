"""Loads operands, binds kernels, and measures points in this process."""
