"""Code that several views share: console, tables, progress, pictures."""
