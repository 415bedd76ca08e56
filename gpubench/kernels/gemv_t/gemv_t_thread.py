"""One thread per column of A."""

from gpubench.kernels.tile_grid import THREADS, tile_grid
from gpubench.model import Config, CudaVariant, Launch, Problem


def launch(tile: Config, problem: Problem) -> Launch:
    """As many threads as columns."""
    return Launch(grid=(-(-problem.n // tile["threads"]),), block=(tile["threads"],))


VARIANT = CudaVariant(
    idea="one thread per column: neighbours read side by side, but threads are few",
    tiles=tile_grid({"threads": THREADS}, default=("32", "128")),
    launch=launch,
    reuse=lambda _tile: (1, 1),
)
