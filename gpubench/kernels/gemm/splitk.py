from dataclasses import replace

from gpubench.kernels.block_tiles import (
    blocks,
    padded_stages_bytes,
    rasterized,
    tiles_of_c,
    variant,
    warps_that_fit,
)
from gpubench.kernels.layouts import unaligned
from gpubench.model import ITEM_BYTES, Config, Launch, Problem

MAX_SUM_BLOCKS = 1024
"""Maximum number of blocks of the second launch: several per multiprocessor of any GPU."""


def launch(tile: Config, problem: Problem) -> Launch:
    """Launch SPLITS blocks per tile of C, which write to the workspace, then the sum."""
    elements = problem.m * problem.n
    return replace(
        rasterized(tile, problem),
        kernel=unaligned("splitk", tile, problem),
        grid=(tile["splits"] * tiles_of_c(tile, problem),),
        workspace_bytes=ITEM_BYTES[problem.dtype] * tile["splits"] * elements,
        next_launches=(
            Launch(kernel="add_up", grid=(min(MAX_SUM_BLOCKS, -(-elements // 256)),), block=(256,)),
        ),
    )


VARIANT = variant(
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
        together=warps_that_fit(padded_stages_bytes),
    ),
    launch=launch,
)
