"""The multiplying loop as the register file wants it; 16×8 elements a thread."""

from gpubench.kernels.block_tiles import (
    MAX_SHARED_BYTES,
    blocks,
    rows_and_columns,
    threads_of,
    whole_warps,
)
from gpubench.model import CudaVariant, Launch, Problem, Tile


def shared_bytes(tile: Tile) -> int:
    """Dynamic shared memory: all stages, each row of A padded by four elements of 4 bytes."""
    bm, bn, bk = tile.block
    return 4 * tile.stages * bk * (bm + 4 + bn)


def launch(tile: Tile, problem: Problem) -> Launch:
    """One block per tile of C, in one dimension: the kernel orders them in bands."""
    bm, bn, _ = tile.block
    return Launch(
        kernel="unaligned" if problem.n % 4 else "",
        grid=(-(-problem.n // bn) * -(-problem.m // bm),),
        block=(threads_of(tile),),
        shared_bytes=shared_bytes(tile),
    )


def together(tile: Tile) -> str | None:
    """Whole warps, and stages that fit shared memory."""
    if shared_bytes(tile) > MAX_SHARED_BYTES:
        return f"{tile}: {shared_bytes(tile)} bytes of shared memory, over {MAX_SHARED_BYTES}"
    return whole_warps(tile)


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
        together=together,
    ),
    launch=launch,
    reuse=rows_and_columns,
)
