"""Matrix times vector, y = A·x."""
