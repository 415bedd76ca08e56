from gpubench.kernels.vectors import SLAB_ROWS, THREADS, slab_launch, tile_grid
from gpubench.model import Config, CudaVariant, Launch, Problem


def launch(tile: Config, problem: Problem) -> Launch:
    """Launch a block for each slab and piece of columns, then the sum of the slabs' parts."""
    return slab_launch(tile, problem, "", "gemv_t_vectorized_sum")


VARIANT = CudaVariant(
    idea="16 bytes of columns per thread, rows cut into slabs: parallel for tall and wide A",
    tiles=tile_grid(
        {"threads": THREADS, "rows_per_slab": SLAB_ROWS, "unroll": range(1, 9)},
        default=("256x32x8", "128x64x8", "128x128x8", "128x256x8", "128x512x8", "256x1024x8"),
    ),
    launch=launch,
    reuse=lambda _tile: (1, 1),
)
