from gpubench.kernels.fitted_tile import TURNS, turns, turns_bytes, why_not_in_turns
from gpubench.kernels.gemm_batched.wgmma_batched import different_tiles, maps_of_batch
from gpubench.kernels.tensor_cores import variant
from gpubench.kernels.tile_costs import choices_of
from gpubench.model import Config, Launch, Problem


def launches(tile: Config, problem: Problem, multiprocessors: int) -> Launch:
    """Launch the number of resident blocks, which take the tiles of all products."""
    return maps_of_batch(turns(tile, problem, multiprocessors), problem)


VARIANT = variant(
    idea="wgmma_pingpong of gemm: blocks stay, and take the tiles of one product after the other",
    after="wgmma_batched",
    tiles=TURNS.tiles(
        group=(4, 8, 16),
        default=(
            "128x128x64/s6/cluster=1x1/group=8",
            "128x128x64/s6/cluster=2x1/group=8",
        ),
        shared_bytes=turns_bytes,
        constraint=why_not_in_turns,
    ),
    launches=launches,
    auto_tiles=lambda problem, multiprocessors: different_tiles(
        choices_of(TURNS), problem, multiprocessors
    ),
)
