"""Judges a user's kernel from outside the process that runs it."""
