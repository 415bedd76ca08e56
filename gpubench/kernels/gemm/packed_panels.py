"""A packed into panels by a first launch; tiles come by bulk copies."""

from gpubench.kernels.block_tiles import (
    MOST_SHARED_BYTES,
    blocks,
    rows_and_columns,
    threads_of,
    whole_warps,
)
from gpubench.model import CudaVariant, Launch, Problem, TensorMap, Tile

BYTES = 4
"""An element's: float32 and int32."""

ADDERS = 1024
"""Blocks that add up: some for each multiprocessor of any GPU."""

B, WORKSPACE = 1, 3
"""Places among the kernel's arrays."""


def shared_bytes(tile: Tile) -> int:
    """Dynamic shared memory: the stages, or the scratch through which results leave."""
    bm, bn, bk = tile.block
    _, tn = tile.thread
    scratch = threads_of(tile) // 32 * (16 * 8 * tn + 4)
    return BYTES * max(tile.stages * bk * (bm + bn), scratch)


def launch(tile: Tile, problem: Problem) -> Launch:
    """Packing, a block per tile of A and per unaligned row of B; the product; with splits, sums."""
    bm, bn, bk = tile.block
    m, n, k = problem.m, problem.n, problem.k
    tiles_of_a = -(-m // bm) * -(-k // bk)
    rows_of_b = k if n % 4 else 0
    row = -(-n // 4) * 4
    parts = m * n * tile.splits if tile.splits > 1 else 0
    product = Launch(
        grid=(tile.splits * -(-n // bn) * -(-m // bm),),
        block=(threads_of(tile),),
        shared_bytes=shared_bytes(tile),
        maps=(
            TensorMap(
                array=WORKSPACE if rows_of_b else B,
                offset_bytes=BYTES * tiles_of_a * bm * bk if rows_of_b else 0,
                shape=(k, row),
                box=(bk, bn),
            ),
        ),
    )
    add_up = Launch(kernel="add_up", grid=(min(ADDERS, -(-m * n // 256)),), block=(256,))
    return Launch(
        kernel="pack",
        grid=(tiles_of_a + rows_of_b,),
        block=(256,),
        workspace_bytes=BYTES * (tiles_of_a * bm * bk + rows_of_b * row + parts),
        then=(product, add_up) if parts else (product,),
    )


def together(tile: Tile) -> str | None:
    """Large tiles with 16×8 elements a thread or small ones with 8×8, of whole warps."""
    if tile.block[:2] + tile.thread not in {(128, 256, 16, 8), (64, 64, 8, 8)}:
        return f"{tile}: takes 128x256 with 16x8 a thread, or 64x64 with 8x8"
    if shared_bytes(tile) > MOST_SHARED_BYTES - 1024:
        return f"{tile}: {shared_bytes(tile)} bytes of shared memory, over {MOST_SHARED_BYTES}"
    return whole_warps(tile)


VARIANT = CudaVariant(
    idea="A packed into transposed panels first, tiles brought by TMA: threads only multiply",
    after="register_banks",
    dtypes=("float32", "int32"),
    capability=(9, 0),
    tiles=blocks(
        rows=(64, 128),
        columns=(64, 256),
        depths=(64,),
        threads=("8x8", "16x8"),
        stages=(2,),
        splits=(1, 2, 4),
        default=("128x256x64/16x8/s2", "128x256x64/16x8/s2/k4", "64x64x64/8x8/s2"),
        together=together,
    ),
    launch=launch,
    reuse=rows_and_columns,
)
