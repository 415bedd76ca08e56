"""A packed into panels by a first launch; tiles come by bulk copies."""

from gpubench.kernels.block_tiles import MOST_SHARED_BYTES, blocks, threads_of, whole_warps
from gpubench.model import CudaVariant, Launch, Problem, Tile

BYTES = 4
"""An element's: float32 and int32."""


def shared_bytes(tile: Tile) -> int:
    """Dynamic shared memory: the stages, or the scratch through which results leave."""
    bm, bn, bk = tile.block
    _, tn = tile.thread
    scratch = threads_of(tile) // 32 * (16 * 8 * tn + 4)
    return BYTES * max(tile.stages * bk * (bm + bn), scratch)


def launch(tile: Tile, problem: Problem) -> Launch:
    """Packing: a block per tile of A, and per row of B if unaligned. Then a block per tile of C."""
    bm, bn, bk = tile.block
    m, n, k = problem.m, problem.n, problem.k
    tiles_of_a = -(-m // bm) * -(-k // bk)
    rows_of_b = k if n % 4 else 0
    product = Launch(
        grid=(-(-n // bn) * -(-m // bm),),
        block=(threads_of(tile),),
        shared_bytes=shared_bytes(tile),
    )
    return Launch(
        kernel="pack",
        grid=(tiles_of_a + rows_of_b,),
        block=(256,),
        workspace_bytes=BYTES * (tiles_of_a * bm * bk + rows_of_b * -(-n // 4) * 4),
        then=(product,),
    )


def together(tile: Tile) -> str | None:
    """Whole warps that share a stage's rows, and stages that fit shared memory."""
    if shared_bytes(tile) > MOST_SHARED_BYTES - 1024:
        return f"{tile}: {shared_bytes(tile)} bytes of shared memory, over {MOST_SHARED_BYTES}"
    return whole_warps(tile)


VARIANT = CudaVariant(
    idea="A packed once into transposed panels, tiles by bulk copies: threads do nothing but multiply",
    after="register_banks",
    dtypes=("float32", "int32"),
    capability=(9, 0),
    tiles=blocks(
        rows=(64, 128),
        columns=(64, 128, 256),
        depths=(32, 64),
        threads=("8x8", "16x8"),
        stages=(2, 3, 4),
        default=("128x256x64/16x8/s2", "64x64x64/8x8/s2"),
        together=together,
    ),
    launch=launch,
    reuse=lambda tile: tile.block[:2],
)
