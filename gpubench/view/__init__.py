"""What views share: console, tables, progress, pictures."""
