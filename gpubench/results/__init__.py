"""What is kept: rows, the files that hold them, the store, and how files are written."""
