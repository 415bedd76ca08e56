"""Child processes that run Python, and the channel to them."""
