"""Starts the child processes that run kernels, and exchanges calls and results with them."""
