from gpubench.kernels.vectors import THREADS, tile_grid, variant

VARIANT = variant(
    idea="one warp per ROWS rows: lanes read side by side and add up by shuffles",
    tiles=tile_grid(
        {"threads": THREADS, "rows_per_warp": range(1, 9)},
        default=("128x1", "128x2", "128x4", "256x1", "256x2", "256x4"),
    ),
    grid="M/(threads//32*rows_per_warp)",
    reuse=lambda tile: (tile["rows_per_warp"], 1),
)
