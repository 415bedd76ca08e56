"""NVIDIA GPUs: the only place that imports CuPy."""
