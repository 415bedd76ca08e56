"""What the parent owns and sees of a user's kernel, outside the process that runs it."""
