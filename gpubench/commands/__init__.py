"""One folder per command. The core imports no command, and commands do not import one another."""
