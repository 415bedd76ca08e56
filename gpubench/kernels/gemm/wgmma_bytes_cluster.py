"""8 bits with fitted tiles, and K in parts by the blocks of a cluster."""

from gpubench.kernels.fitted_tile import (
    BYTES,
    SUM_BYTES,
    is_transposed,
    maps,
    stages_bytes,
    threads,
    why_not,
)
from gpubench.kernels.padded_rows import on_padded_rows, takes_any_rows
from gpubench.kernels.tensor_cores import cluster, clusters, variant
from gpubench.kernels.tile_costs import Picks
from gpubench.model import Config, Launch, Problem


def shared_bytes(tile: Config) -> int:
    """Return the shared memory of the stages, and later of sums with the source's padding."""
    columns = tile["BN"]
    padding = 16 if is_transposed(tile) else 96 if columns % 32 else 32
    return int(max(stages_bytes(tile), tile["BM"] * (columns * SUM_BYTES + padding)))


def launches(tile: Config, problem: Problem, _multiprocessors: int) -> Launch:
    """Return a launch of one block per tile and part of K, after copies of A and B if needed."""
    rows, columns = cluster(tile)
    blocks = rows * columns * tile["splits"]
    a, b, c = maps(tile, problem)
    by_boxes = problem.precision.result_bytes == 2 and problem.n % 8 == 0  # noqa: PLR2004 # float8's
    product = Launch(
        grid=(blocks * clusters(tile, problem),),
        block=(threads(tile),),
        shared_bytes=shared_bytes(tile),
        tensor_maps=(a, b, c if by_boxes else b),
        cluster=(blocks, 1, 1),
        pdl=True,
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
