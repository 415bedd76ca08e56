"""Small products with rows of any length, which the block's warps load."""

from dataclasses import replace

from gpubench.kernels import fitted_tile
from gpubench.kernels.fitted_tile import LOADED_ROWS, consumers, why_not
from gpubench.kernels.gemm.wgmma_any_rows import refuse
from gpubench.kernels.gemm.wgmma_bytes_cluster import shared_bytes
from gpubench.kernels.tensor_cores import variant
from gpubench.kernels.tile_costs import Picks
from gpubench.model import Config, Launch, Problem

LOADING_THREADS = 12 * 32


def launches(tile: Config, problem: Problem, multiprocessors: int) -> Launch:
    """Return a launch of one block per tile and part of K."""
    return replace(
        fitted_tile.launches(tile, problem, multiprocessors),
        block=(128 * consumers(*tile.numbers("BM", "BN")) + LOADING_THREADS,),
        shared_bytes=shared_bytes(tile),
        tensor_maps=(),
    )


VARIANT = variant(
    idea="small products with rows of any length: warps load what the TMA cannot copy",
    after="wgmma_any_rows",
    tiles=LOADED_ROWS.tiles(
        default=("64x64x64/s8/k1/cluster=1x1", "64x64x64/s8/k4/cluster=1x1"),
        shared_bytes=shared_bytes,
        constraint=why_not,
    ),
    launches=launches,
    auto_tiles=Picks(LOADED_ROWS),
    refuse=refuse,
)
