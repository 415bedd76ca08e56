"""Starts child processes that run Python, and exchanges messages with these processes."""
