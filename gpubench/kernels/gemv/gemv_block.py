from gpubench.kernels.vectors import THREADS, tile_grid, variant

VARIANT = variant(
    idea="one block per row, loads of 16 bytes: few rows in flight, and each ends soon",
    tiles=tile_grid(
        {"threads": THREADS, "unroll": range(1, 9)},
        default=("64x4", "128x4", "128x8", "256x4", "512x2", "512x4", "1024x4"),
    ),
    grid="M",
)
