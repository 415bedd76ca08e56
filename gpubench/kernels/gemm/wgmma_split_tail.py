"""`wgmma_deferred` with the last tiles taken by two blocks each."""

from dataclasses import replace

from gpubench.kernels.tensor_cores import (
    cluster,
    clusters,
    even_grid,
    persistent,
    stages_and_results_bytes,
    tiles,
    variant,
)
from gpubench.model import Config, Launch, Problem


def whole_pairs(pairs: int, at_most: int) -> tuple[int, int]:
    """Pairs of tiles that are taken whole by `at_most` pairs of blocks, and pairs to launch.

    The others, which are a last round that is less than half full, leave a tile for each pair of
    blocks.
    """
    last = pairs % at_most
    if not last or 2 * last > at_most:
        return pairs, even_grid(pairs, at_most)
    rounds = pairs // at_most
    workers = -(-2 * pairs // (2 * rounds + 1))
    return rounds * workers, workers


def launches(tile: Config, problem: Problem, multiprocessors: int) -> Launch:
    """At most one block a multiprocessor, in pairs."""
    whole, workers = whole_pairs(clusters(tile, problem), multiprocessors // 2)
    return replace(
        persistent(tile, problem, multiprocessors), grid=(2 * workers,), int_arguments=(whole,)
    )


def why_not(tile: Config) -> str | None:
    """Two blocks, one above the other, each fetch half of the 64-column boxes of B."""
    rows, _ = cluster(tile)
    if tile["BN"] // 64 % rows:
        return f"{tile}: {rows} blocks cannot each fetch the same number of 64 columns"
    return None


VARIANT = variant(
    idea="blocks stay, and in the last round a pair shares each tile, with half of K each",
    after="wgmma_deferred",
    tiles=tiles(
        rows=(128, 256),
        columns=(128, 192, 256),
        stages=(3, 4, 5, 6),
        cluster=("1x2", "2x1"),
        group=(4, 8, 16),
        pdl=(0, 1),
        default=(
            "128x256x64/s4/cluster=2x1/group=8/pdl=1",
            "128x192x64/s4/cluster=1x2/group=8/pdl=1",
            "128x128x64/s6/cluster=2x1/group=8/pdl=1",
        ),
        shared_bytes=stages_and_results_bytes,
        constraint=why_not,
    ),
    launches=launches,
)
