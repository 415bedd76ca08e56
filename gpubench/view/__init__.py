"""Code that several commands share to show results: console, tables, progress and pictures."""
