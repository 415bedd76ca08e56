"""Results: rows, the files that hold rows, and the store."""
