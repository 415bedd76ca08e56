"""Judges what a kernel computed, and the time that was reported for it."""
