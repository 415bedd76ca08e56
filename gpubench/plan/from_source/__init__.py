"""Reads CUDA C++ and describes its functions, as `gpubench new-kernel --from` writes them."""
