"""Sums of 16 bytes of columns a thread, over slabs of ROWS rows, and a launch that adds them up."""

from gpubench.kernels.partial_sums import slab_launch
from gpubench.kernels.tile_grid import SLAB_ROWS, THREADS, tile_grid
from gpubench.model import Config, CudaVariant, Launch, Problem


def launch(tile: Config, problem: Problem) -> Launch:
    """A block for each slab and piece of columns; then the sum of the slabs' parts."""
    return slab_launch(tile, problem, "", "gemv_t_vectorized_sum")


VARIANT = CudaVariant(
    idea="16 bytes of columns a thread, rows cut into slabs: parallel however tall A is",
    tiles=tile_grid(
        {"threads": THREADS, "rows_per_slab": SLAB_ROWS, "unroll": range(1, 9)},
        default=("256x32x8", "128x64x8", "128x128x8", "128x256x8", "128x512x8", "256x1024x8"),
    ),
    launch=launch,
    reuse=lambda _tile: (1, 1),
)
