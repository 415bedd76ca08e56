"""Sums of 16 bytes of columns a thread, over slabs of ROWS rows, and a launch that adds them up."""

from gpubench.kernels.partial_sums import sum_launch
from gpubench.kernels.tile_grid import THREADS, tile_grid
from gpubench.model import ITEM_BYTES, CudaVariant, Launch, Problem, Tile

ROWS = (32, 64, 128, 256, 512, 1024)
"""Of a slab."""


def launch(tile: Tile, problem: Problem) -> Launch:
    """A block for each slab of ROWS rows and for each 16 bytes × threads of columns."""
    threads, rows, _ = tile.block
    item = ITEM_BYTES[problem.dtype]
    across, slabs = -(-problem.n // (threads * 16 // item)), -(-problem.m // rows)
    several = slabs > 1
    return Launch(
        grid=(across * slabs,),
        block=(threads,),
        workspace_bytes=slabs * problem.n * item if several else 16,
        then=(sum_launch("gemv_t_vectorized_sum", problem.n),) if several else (),
    )


VARIANT = CudaVariant(
    idea="16 bytes of columns a thread, rows cut into slabs: parallel however tall A is",
    tiles=tile_grid(
        {"threads": THREADS, "rows a slab": ROWS, "unroll": range(1, 9)},
        default=("64x128x8", "128x64x8", "128x128x4", "128x128x8", "256x128x8", "256x256x8"),
    ),
    launch=launch,
    reuse=lambda _tile: (1, 1),
)
