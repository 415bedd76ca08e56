"""Runs CUDA sources on the CPU: `check` under sanitizers, `explain` to record accesses."""
