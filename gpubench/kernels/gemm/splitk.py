"""Several blocks share the work along K for one tile; a second launch adds up."""

from gpubench.kernels.block_tiles import (
    MAX_SHARED_BYTES,
    blocks,
    rows_and_columns,
    threads_of,
    whole_warps,
)
from gpubench.model import CudaVariant, Launch, Problem, Tile

BYTES = 4
"""An element's: float32 and int32."""

ADDERS = 1024
"""Blocks that add up: some for each multiprocessor of any GPU."""


def shared_bytes(tile: Tile) -> int:
    """Dynamic shared memory: all stages, each row of A padded by four elements."""
    bm, bn, bk = tile.block
    return BYTES * tile.stages * bk * (bm + 4 + bn)


def launch(tile: Tile, problem: Problem) -> Launch:
    """SPLITS blocks per tile of C, each into a matrix of the workspace; then their sum."""
    bm, bn, _ = tile.block
    elements = problem.m * problem.n
    return Launch(
        kernel="splitk_unaligned" if problem.n % 4 else "",
        grid=(tile.splits * -(-problem.n // bn) * -(-problem.m // bm),),
        block=(threads_of(tile),),
        shared_bytes=shared_bytes(tile),
        workspace_bytes=BYTES * tile.splits * elements,
        next_launches=(
            Launch(kernel="add_up", grid=(min(ADDERS, -(-elements // 256)),), block=(256,)),
        ),
    )


def together(tile: Tile) -> str | None:
    """Whole warps, and stages that fit shared memory."""
    if shared_bytes(tile) > MAX_SHARED_BYTES:
        return f"{tile}: {shared_bytes(tile)} bytes of shared memory, over {MAX_SHARED_BYTES}"
    return whole_warps(tile)


VARIANT = CudaVariant(
    idea="blocks share K for one tile, then one launch adds up: small results that fill the GPU",
    after="register_banks",
    dtypes=("float32", "int32"),
    tiles=blocks(
        rows=(128,),
        columns=(128, 256),
        depths=(32,),
        threads=("16x8",),
        stages=(3,),
        splits=(2, 4, 8),
        default=("128x256x32/16x8/s3/k4",),
        together=together,
    ),
    launch=launch,
    reuse=rows_and_columns,
)
