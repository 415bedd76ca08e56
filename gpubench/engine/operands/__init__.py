"""The operands of a problem and the reference of its result."""
