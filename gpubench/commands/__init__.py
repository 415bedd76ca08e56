"""One folder a command; core imports none of them, and they do not import one another."""
