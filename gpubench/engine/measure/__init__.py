"""Measures a point in this process: loads operands, binds a kernel, launches and samples it."""
