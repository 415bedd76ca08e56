from gpubench.kernels.vectors import THREADS, tile_grid, variant
from gpubench.model import Config

MAX_IN_FLIGHT = 16
"""Maximum number of loads of 16 bytes in flight per thread (rows × unroll). Each load takes four
registers."""


def refuse(tile: Config) -> str | None:
    """Refuse a tile whose loads in flight would spill registers."""
    threads, rows, unroll = tile.numbers("threads", "rows_per_warp", "unroll")
    max_loads = min(MAX_IN_FLIGHT, 8192 // threads)
    if rows * unroll > max_loads:
        return f"takes up to {max_loads} loads in flight with {threads} threads: more would spill"
    return None


VARIANT = variant(
    idea="gemv_warp with loads of 16 bytes, several in flight",
    tiles=tile_grid(
        {"threads": THREADS, "rows_per_warp": range(1, 9), "unroll": range(1, 9)},
        default=("64x1x4", "128x1x4", "128x1x8", "128x2x4", "256x1x4", "256x2x2", "256x2x4"),
        refuse=refuse,
    ),
    grid="M/(threads//32*rows_per_warp)",
    reuse=lambda tile: (tile["rows_per_warp"], 1),
)
