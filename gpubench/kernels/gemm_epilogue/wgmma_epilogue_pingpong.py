from gpubench.kernels.fitted_tile import TURNS, turns, turns_bytes, why_not_in_turns
from gpubench.kernels.gemm_epilogue.wgmma_epilogue import (
    TOGETHER,
    instance,
    maps_of_epilogue,
    stages_of,
)
from gpubench.kernels.tensor_cores import variant
from gpubench.kernels.tile_costs import Picks
from gpubench.model import Config, CudaVariant, Launch, Problem


def launches(tile: Config, problem: Problem, multiprocessors: int) -> Launch:
    """Launch the number of resident blocks, or fewer blocks if these end together."""
    launch = turns(tile, problem, multiprocessors)
    return maps_of_epilogue(launch, problem, launch.tensor_maps[-1])


def VARIANT(op: str) -> CudaVariant:  # noqa: N802 # the name that descriptions have
    """Return the kernel of an operation."""
    return variant(
        idea="wgmma_pingpong of gemm: a warpgroup finishes and stores while the other multiplies",
        after="wgmma_epilogue",
        kernel=instance(
            op, "wgmma_epilogue_pingpong", "{BM}, {BN}, {BK}, {stages}, {cluster}, {group}"
        ),
        tiles=TURNS.tiles(
            stages=stages_of(op),
            group=(4, 8, 16),
            default=(
                "128x128x64/s6/cluster=2x1/group=8",
                "104x192x64/s5/cluster=2x1/group=8",
            ),
            shared_bytes=turns_bytes,
            constraint=why_not_in_turns,
        ),
        launches=launches,
        auto_tiles=Picks(TURNS, TOGETHER),
    )
