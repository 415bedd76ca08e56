"""One thread per column of A."""

from gpubench.kernels.tile_grid import THREADS, tile_grid
from gpubench.model import CudaVariant, Launch, Problem, Tile


def launch(tile: Tile, problem: Problem) -> Launch:
    """As many threads as columns."""
    return Launch(grid=(-(-problem.n // tile.edge),), block=(tile.edge,))


VARIANT = CudaVariant(
    idea="one thread per column: neighbours read side by side, but threads are few",
    tiles=tile_grid({"threads": THREADS}, default=("32", "128")),
    launch=launch,
    reuse=lambda _tile: (1, 1),
)
