"""The multiplying loop as the register file wants it; 16×8 elements a thread."""

from gpubench.kernels.block_tiles import (
    blocks,
    padded_stages_bytes,
    rows_and_columns,
    threads_of,
    tiles_of_c,
    warps_that_fit,
)
from gpubench.model import CudaVariant, Launch, Problem, Tile


def launch(tile: Tile, problem: Problem) -> Launch:
    """One block per tile of C, in one dimension: the kernel rasterizes them."""
    return Launch(
        kernel="unaligned" if problem.n % 4 else "",
        grid=(tiles_of_c(tile, problem),),
        block=(threads_of(tile),),
        shared_bytes=padded_stages_bytes(tile),
    )


VARIANT = CudaVariant(
    idea="16×8 per thread; operands a step ahead, sums in banks without conflicts, copies spread",
    after="pipelined",
    dtypes=("float32", "int32"),
    tiles=blocks(
        rows=(128,),
        columns=(128, 256),
        depths=(16, 32),
        threads=("16x8",),
        stages=(3,),
        default=("128x256x32/16x8/s3",),
        together=warps_that_fit(padded_stages_bytes),
    ),
    launch=launch,
    reuse=rows_and_columns,
)
