"""Runs CUDA sources on the CPU.

`check` runs the sources under sanitizers, and `explain` records their accesses to memory.
"""
