"""The wall between this process and the processes that run kernels, and what passes it."""
