from dataclasses import replace

from gpubench.kernels import fitted_tile
from gpubench.kernels.fitted_tile import BYTES, SUM_BYTES, stage_bytes, why_not
from gpubench.kernels.padded_rows import on_padded_rows, takes_any_rows
from gpubench.kernels.tensor_cores import ALIGNED_BYTES, variant
from gpubench.kernels.tile_costs import Picks
from gpubench.model import Config, Launch, Problem


def shared_bytes(tile: Config) -> int:
    """Return the shared memory of the stages, and later of sums with the source's padding."""
    rows, columns, stages = tile.numbers("BM", "BN", "stages")
    padding = 16 if columns % 64 == 0 else 96 if columns % 32 else 32
    return int(max(stages * stage_bytes(rows, columns), rows * (columns * SUM_BYTES + padding)))


def launches(tile: Config, problem: Problem, multiprocessors: int) -> Launch:
    """Return a launch of one block per tile and part of K, after copies of A and B if needed."""
    a, b, c = fitted_tile.maps(tile, problem)
    by_boxes = problem.n * problem.precision.result_bytes % ALIGNED_BYTES == 0
    product = replace(
        fitted_tile.launches(tile, problem, multiprocessors),
        shared_bytes=shared_bytes(tile),
        tensor_maps=(a, b, c if by_boxes else b),
    )
    return on_padded_rows(product, problem)


VARIANT = variant(
    idea="8 bits for any shape: fitted tiles, and K in parts by the blocks of a cluster",
    after="wgmma_bytes",
    dtypes=BYTES.dtypes,
    tiles=BYTES.tiles(
        default=(
            "64x128x128/s8/k1/cluster=1x1",
            "128x128x128/s7/k2/cluster=1x1",
            "192x192x128/s4/k4/cluster=1x1",
        ),
        shared_bytes=shared_bytes,
        constraint=why_not,
    ),
    launches=launches,
    refuse=takes_any_rows,
    auto_tiles=Picks(BYTES),
)
