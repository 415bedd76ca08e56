"""Statistics: pure functions on arrays of times."""
