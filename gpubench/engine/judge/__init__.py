"""Judges the results of a kernel, and the time that was reported for the kernel."""
