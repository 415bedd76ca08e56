"""Makes and keeps operands, and the references with which results are compared."""
