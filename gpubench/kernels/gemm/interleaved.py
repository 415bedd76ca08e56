from collections.abc import Callable
from dataclasses import replace

from gpubench.kernels.block_tiles import (
    blocks,
    padded_stages_bytes,
    rasterized,
    variant,
    warps_that_fit,
)
from gpubench.kernels.layouts import unaligned
from gpubench.model import Config, Launch, Problem


def block_per_tile(name: str) -> Callable[[Config, Problem], Launch]:
    """Return the launch of one block per tile of C, by another instance for unaligned rows of B."""

    def launch(tile: Config, problem: Problem) -> Launch:
        return replace(rasterized(tile, problem), kernel=unaligned(name, tile, problem))

    return launch


VARIANT = variant(
    idea="operands loaded one k ahead, copies spread over the loop: loads are far from their use",
    after="large_tile",
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
    launch=block_per_tile("interleaved"),
)
