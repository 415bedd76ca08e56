"""Results of measurements: their rows, the files with these rows, and the store of saved files."""
