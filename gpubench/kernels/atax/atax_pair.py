"""gemv_vectorized, then gemv_t_vectorized: A is read twice."""

from gpubench.kernels.partial_sums import sum_launch
from gpubench.kernels.tile_grid import THREADS, tile_grid
from gpubench.model import ITEM_BYTES, CudaVariant, Launch, Problem, Tile

PAIR_ROWS = 2
SLAB_ROWS = 128
"""As in the source."""


def launch(tile: Tile, problem: Problem) -> Launch:
    """The rows by warps, the columns by slabs, and the sum of the slabs' parts."""
    threads, _ = tile.block
    item = ITEM_BYTES[problem.dtype]
    across, slabs = -(-problem.n // (threads * 16 // item)), -(-problem.m // SLAB_ROWS)
    parts = slabs * problem.n * item if slabs > 1 else 0
    transposed = Launch(grid=(across * slabs,), block=(threads,), kernel="atax_pair_t")
    return Launch(
        grid=(-(-problem.m // (threads // 32 * PAIR_ROWS)),),
        block=(threads,),
        workspace_bytes=-(-problem.m * item // 16) * 16 + parts,
        then=(transposed, *((sum_launch("atax_pair_sum", problem.n),) if slabs > 1 else ())),
    )


VARIANT = CudaVariant(
    idea="gemv_vectorized, then gemv_t_vectorized: A is read twice",
    tiles=tile_grid(
        {"threads": THREADS, "unroll": range(1, 9)}, default=("128x4", "128x8", "256x4", "256x8")
    ),
    launch=launch,
    reuse=lambda _tile: (PAIR_ROWS, 1),
)
