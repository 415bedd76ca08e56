from gpubench.kernels.vectors import SLAB_ROWS, THREADS, slab_launch, tile_grid
from gpubench.model import ITEM_BYTES, Config, CudaVariant, Launch, Problem


def launch(tile: Config, problem: Problem) -> Launch:
    """Launch a block per row, then the columns by slabs, then the sum of their parts."""
    slabs = slab_launch(tile, problem, "atax_pair_t", "atax_pair_sum")
    b_bytes = -(-problem.m * ITEM_BYTES[problem.dtype] // 16) * 16
    return Launch(
        grid=(problem.m,),
        block=(tile["threads"],),
        workspace_bytes=b_bytes + slabs.workspace_bytes,
        next_launches=slabs.sequence,
    )


VARIANT = CudaVariant(
    idea="gemv_block, then gemv_t_vectorized: A is read twice",
    tiles=tile_grid(
        {"threads": THREADS, "rows_per_slab": SLAB_ROWS, "unroll": range(1, 9)},
        default=("256x64x4", "128x128x8", "128x512x8", "256x256x8"),
    ),
    launch=launch,
    reuse=lambda _tile: (1, 1),
)
