from gpubench.kernels.block_tiles import tiles_of_c
from gpubench.kernels.tensor_cores import operand_maps, stages_bytes, tiles, variant
from gpubench.model import Config, Launch, Problem


def launches(tile: Config, problem: Problem, _multiprocessors: int) -> Launch:
    """Launch one block per tile of C, with one warpgroup per 64 rows."""
    return Launch(
        grid=(tiles_of_c(tile, problem),),
        block=(2 * tile["BM"],),
        shared_bytes=stages_bytes(tile),
        tensor_maps=operand_maps(tile, problem),
    )


VARIANT = variant(
    idea="wgmma: four warps multiply tiles in shared memory, which the TMA fills, swizzled",
    after="mma_sync",
    tiles=tiles(
        rows=(64, 128),
        columns=(128, 256),
        default=("128x128x64", "128x256x64"),
        shared_bytes=stages_bytes,
    ),
    launches=launches,
)
