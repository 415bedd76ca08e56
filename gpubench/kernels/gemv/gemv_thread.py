"""One thread per row of A."""

from gpubench.kernels.tile_grid import THREADS, tile_grid
from gpubench.model import Config, CudaVariant, Launch, Problem


def launch(tile: Config, problem: Problem) -> Launch:
    """As many threads as rows."""
    return Launch(grid=(-(-problem.m // tile["threads"]),), block=(tile["threads"],))


VARIANT = CudaVariant(
    idea="one thread per row: neighbours read N elements apart, uncoalesced",
    tiles=tile_grid({"threads": THREADS}, default=("128", "256")),
    launch=launch,
    reuse=lambda _tile: (1, 1),
)
