"""One warp per ROWS rows of A."""

from gpubench.kernels.tile_grid import THREADS, tile_grid
from gpubench.model import CudaVariant, Launch, Problem, Tile


def launch(tile: Tile, problem: Problem) -> Launch:
    """A warp for every ROWS rows."""
    threads, rows = tile.block
    return Launch(grid=(-(-problem.m // (threads // 32 * rows)),), block=(threads,))


VARIANT = CudaVariant(
    idea="one warp per rows: lanes read side by side and add up by shuffles",
    tiles=tile_grid(
        {"threads": THREADS, "rows a warp": range(1, 9)},
        default=("128x1", "128x2", "128x4", "256x1", "256x2", "256x4"),
    ),
    launch=launch,
    reuse=lambda tile: (tile.block[1], 1),
)
