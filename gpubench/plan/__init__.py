"""Plans what to run: reads ranges, flags and files, and selects kernels and points."""
