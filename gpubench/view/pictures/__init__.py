"""Pictures of rows, by matplotlib."""
