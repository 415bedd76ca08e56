from gpubench.kernels.block_tiles import tiles_of_c
from gpubench.kernels.tensor_cores import operand_maps, stages_bytes, threads, tiles, variant
from gpubench.model import Config, Launch, Problem


def launches(tile: Config, problem: Problem, _multiprocessors: int) -> Launch:
    """Launch one block per tile of C."""
    return Launch(
        grid=(tiles_of_c(tile, problem),),
        block=(threads(tile),),
        shared_bytes=stages_bytes(tile),
        tensor_maps=operand_maps(tile, problem),
    )


VARIANT = variant(
    idea="a warpgroup fetches and others multiply, with a ring of stages and mbarriers between",
    after="wgmma",
    tiles=tiles(
        rows=(64, 128, 256),
        columns=(128, 256),
        stages=(2, 3, 4, 6, 8),
        default=("128x256x64/s4", "128x128x64/s6"),
        shared_bytes=stages_bytes,
    ),
    launches=launches,
)
