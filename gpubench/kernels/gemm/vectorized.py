"""128-bit loads and stores, with A's tile transposed in shared memory."""

from gpubench.kernels.block_tiles import at_most_1024_threads, blocks, rows_and_columns, threads_of
from gpubench.model import CudaVariant, Launch, Problem, Tile


def launch(tile: Tile, problem: Problem) -> Launch:
    """One block per tile of C, the grid's x over columns."""
    bm, bn, _ = tile.block
    return Launch(grid=(-(-problem.n // bn), -(-problem.m // bm)), block=(threads_of(tile),))


VARIANT = CudaVariant(
    idea="128 bits an instruction; A transposed and padded in shared memory",
    after="blocktile_2d",
    tiles=blocks(
        rows=(64, 128),
        columns=(64, 128),
        depths=(8, 16),
        threads=("4x4", "8x8"),
        default=("128x128x8/8x8",),
        together=at_most_1024_threads,
    ),
    launch=launch,
    reuse=rows_and_columns,
)
