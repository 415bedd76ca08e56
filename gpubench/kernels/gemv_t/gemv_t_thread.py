from gpubench.kernels.vectors import THREADS, tile_grid, variant

VARIANT = variant(
    idea="one thread per column: neighbours read side by side, but threads are few",
    tiles=tile_grid({"threads": THREADS}, default=("32", "128")),
    grid="N/threads",
)
