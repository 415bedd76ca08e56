from gpubench.kernels.fitted_tile import SUM_BYTES, TF32, why_not_shared
from gpubench.kernels.gemm.wgmma_tf32 import threads
from gpubench.kernels.padded_rows import on_padded_rows, takes_any_rows
from gpubench.kernels.tensor_cores import block_per_part, stages_bytes, variant
from gpubench.kernels.tile_costs import Picks
from gpubench.model import Config, Launch, Problem

PADDING_BYTES = 16
"""Padding of a row of sums, as in the source."""


def shared_bytes(tile: Config) -> int:
    """Return the shared memory of the stages, and later of sums for the other parts."""
    row = tile["BN"] * SUM_BYTES + PADDING_BYTES
    return int(max(stages_bytes(tile, 4), tile["BM"] * row if tile["splits"] > 1 else 0))


def launches(tile: Config, problem: Problem, _multiprocessors: int) -> Launch:
    """Return a launch of one block per tile and part of K, after copies of rows if needed."""
    product = block_per_part(tile, problem, threads=threads(tile), shared_bytes=shared_bytes(tile))
    return on_padded_rows(product, problem)


VARIANT = variant(
    idea="TF32 for any shape: rows of a tile by 16, and K in parts by the blocks of a cluster",
    after="wgmma_tf32",
    dtypes=TF32.dtypes,
    tiles=TF32.tiles(
        stages=range(2, 13),
        default=(
            "64x128x32/s8/k1/cluster=1x1",
            "128x64x32/s8/k4/cluster=1x1",
            "192x128x32/s5/k2/cluster=1x1",
        ),
        shared_bytes=shared_bytes,
        constraint=why_not_shared,
    ),
    launches=launches,
    refuse=takes_any_rows,
    auto_tiles=Picks(TF32),
)
