"""Runs points and whole sweeps: makes operands, verifies results, samples times."""
