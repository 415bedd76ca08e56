"""What the figures say: rates, peaks. Pure."""
