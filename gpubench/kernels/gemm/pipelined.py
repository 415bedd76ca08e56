from dataclasses import replace

from gpubench.kernels.block_tiles import block_per_tile, blocks, variant, warps_that_fit
from gpubench.model import ITEM_BYTES, Config, Launch, Problem


def shared_bytes(tile: Config, dtype: str = "float64") -> int:
    """Return the dynamic shared memory of all stages, with A's rows padded by 16 bytes."""
    bm, bn, bk, stages = tile.numbers("BM", "BN", "BK", "stages")
    return stages * bk * ((bm + bn) * ITEM_BYTES[dtype] + 16)


def launch(tile: Config, problem: Problem) -> Launch:
    """Launch one block per tile of C, with shared memory for all stages."""
    return replace(block_per_tile(tile, problem), shared_bytes=shared_bytes(tile, problem.dtype))


VARIANT = variant(
    idea="cp.async: the next tiles arrive in shared memory while the current tile is computed",
    after="warptile",
    tiles=blocks(
        rows=(64, 128),
        columns=(128,),
        depths=(8, 16),
        threads=("8x8",),
        stages=(2, 3, 4),
        default=("128x128x16/8x8/s3", "64x128x16/8x8/s3"),
        together=warps_that_fit(shared_bytes),
    ),
    launch=launch,
)
