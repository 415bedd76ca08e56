from gpubench.kernels.vectors import THREADS, tile_grid, variant

VARIANT = variant(
    idea="one thread per row: neighbours read N elements apart, uncoalesced",
    tiles=tile_grid({"threads": THREADS}, default=("128", "256")),
    grid="M/threads",
)
