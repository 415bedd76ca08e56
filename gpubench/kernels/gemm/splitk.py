"""Several blocks share the work along K for one tile, and add up through shared memory."""

from gpubench.kernels.block_tiles import MOST_SHARED_BYTES, blocks, threads_of, whole_warps
from gpubench.model import CudaVariant, Launch, Problem, Tile


def shared_bytes(tile: Tile) -> int:
    """Dynamic shared memory: the stages of the loop, or the tile of sums, in 4-byte elements."""
    bm, bn, bk = tile.block
    return 4 * max(tile.stages * bk * (bm + 4 + bn), bm * (bn + 4))


def launch(tile: Tile, problem: Problem) -> Launch:
    """SPLITS neighbouring blocks, a cluster, per tile of C."""
    bm, bn, _ = tile.block
    return Launch(
        grid=(tile.splits * -(-problem.n // bn) * -(-problem.m // bm),),
        block=(threads_of(tile),),
        shared_bytes=shared_bytes(tile),
    )


def together(tile: Tile) -> str | None:
    """Whole warps, and what fits shared memory."""
    if shared_bytes(tile) > MOST_SHARED_BYTES:
        return f"{tile}: {shared_bytes(tile)} bytes of shared memory, over {MOST_SHARED_BYTES}"
    return whole_warps(tile)


VARIANT = CudaVariant(
    idea="a cluster of blocks shares K for one tile: small results that fill the GPU",
    after="register_banks",
    dtypes=("float32", "int32"),
    capability=(9, 0),
    tiles=blocks(
        rows=(128,),
        columns=(128, 256),
        depths=(32,),
        threads=("16x8",),
        stages=(3,),
        splits=(2, 4, 8),
        default=("128x256x32/16x8/s3/k4", "128x128x32/16x8/s3/k4"),
        together=together,
    ),
    launch=launch,
    reuse=lambda tile: tile.block[:2],
)
