"""Judges what a kernel computed, and how long it says that it took."""
