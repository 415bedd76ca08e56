"""`wgmma_fitted` by blocks that stay, with the last tiles taken by two blocks each."""

from gpubench.kernels.fitted_tile import (
    ROUNDS,
    SUM_BYTES,
    consumers,
    maps,
    stages_bytes,
    why_not,
)
from gpubench.kernels.tensor_cores import cluster, clusters, even_grid, variant
from gpubench.kernels.tile_costs import Picks
from gpubench.model import Config, Launch, Problem

BUFFER_BYTES = 4 * 2 * 512
"""Two buffers for results of each warp, of a warpgroup."""


def whole_tiles(of_clusters: int, at_most: int, blocks: int) -> tuple[int, int]:
    """Return how many clusters' worth of tiles are taken whole, and the number of clusters.

    Where the last round of at most `at_most` clusters is less than half full, each of its tiles is
    shared by the two blocks of a cluster.
    """
    last = of_clusters % at_most
    if blocks == 1 or not last or 2 * last > at_most:
        return of_clusters, even_grid(of_clusters, at_most)
    rounds = of_clusters // at_most
    workers = -(-2 * of_clusters // (2 * rounds + 1))
    return rounds * workers, workers


def shared_bytes(tile: Config) -> int:
    """Return the shared memory of the stages, where sums for another block fit, and of results."""
    sums = SUM_BYTES * tile["BM"] * tile["BN"]
    return int(max(stages_bytes(tile), sums)) + consumers(tile) * BUFFER_BYTES


def launches(tile: Config, problem: Problem, multiprocessors: int) -> Launch:
    """Return a launch of at most one block a multiprocessor, in whole clusters."""
    rows, columns = cluster(tile)
    blocks = rows * columns
    whole, workers = whole_tiles(clusters(tile, problem), max(1, multiprocessors // blocks), blocks)
    return Launch(
        grid=(blocks * workers,),
        block=(128 * (consumers(tile) + 1),),
        shared_bytes=shared_bytes(tile),
        tensor_maps=maps(tile, problem)[:-1],
        int_arguments=(whole,),
        cluster=(blocks, 1, 1),
        pdl=bool(tile["pdl"]),
    )


VARIANT = variant(
    idea="blocks stay, and in the last round a pair shares each tile, with half of K each",
    after="wgmma_split_cluster",
    tiles=ROUNDS.tiles(
        stages=(3, 4, 5, 6),
        group=(8, 16),
        pdl=(0, 1),
        default=(
            "128x256x64/s4/cluster=2x1/group=8/pdl=1",
            "192x256x64/s3/cluster=2x1/group=8/pdl=1",
            "192x128x64/s5/cluster=1x2/group=8/pdl=1",
        ),
        shared_bytes=shared_bytes,
        constraint=why_not,
    ),
    launches=launches,
    auto_tiles=Picks(ROUNDS),
)
