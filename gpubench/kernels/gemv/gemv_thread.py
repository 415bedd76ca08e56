"""One thread per row of A."""

from gpubench.kernels.tile_grid import THREADS, tile_grid
from gpubench.model import CudaVariant, Launch, Problem, Tile


def launch(tile: Tile, problem: Problem) -> Launch:
    """As many threads as rows."""
    return Launch(grid=(-(-problem.m // tile.edge),), block=(tile.edge,))


VARIANT = CudaVariant(
    idea="one thread per row: neighbours read N elements apart, uncoalesced",
    tiles=tile_grid({"threads": THREADS}, default=("128", "256")),
    launch=launch,
    reuse=lambda _tile: (1, 1),
)
