"""Asynchronous copies: STAGES tiles of A and B in shared memory, the next ones under way."""

from gpubench.kernels.block_tiles import (
    MAX_SHARED_BYTES,
    blocks,
    rows_and_columns,
    threads_of,
    whole_warps,
)
from gpubench.model import ITEM_BYTES, CudaVariant, Launch, Problem, Tile


def shared_bytes(tile: Tile, dtype: str) -> int:
    """Dynamic shared memory: all stages, each row of A padded by one vector of 16 bytes."""
    bm, bn, bk = tile.block
    return tile.stages * bk * ((bm + bn) * ITEM_BYTES[dtype] + 16)


def launch(tile: Tile, problem: Problem) -> Launch:
    """One block per tile of C, the grid's x over columns."""
    bm, bn, _ = tile.block
    return Launch(
        grid=(-(-problem.n // bn), -(-problem.m // bm)),
        block=(threads_of(tile),),
        shared_bytes=shared_bytes(tile, problem.dtype),
    )


def together(tile: Tile) -> str | None:
    """Whole warps, and stages that fit shared memory at eight bytes an element."""
    needed = shared_bytes(tile, "float64")
    if needed > MAX_SHARED_BYTES:
        return f"{tile}: {needed} bytes of shared memory in float64, over {MAX_SHARED_BYTES}"
    return whole_warps(tile)


VARIANT = CudaVariant(
    idea="cp.async: the next tiles arrive in shared memory while this one is computed",
    after="warptile",
    tiles=blocks(
        rows=(64, 128),
        columns=(128,),
        depths=(8, 16),
        threads=("8x8",),
        stages=(2, 3, 4),
        default=("128x128x16/8x8/s3", "64x128x16/8x8/s3"),
        together=together,
    ),
    launch=launch,
    reuse=rows_and_columns,
)
