"""Makes operands, verifies results and measures times, for single points and for whole sweeps."""
