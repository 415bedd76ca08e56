"""`wgmma_deferred` with larger tiles of two widths, so that all blocks end together."""

from dataclasses import replace
from functools import cache

from gpubench.kernels.tensor_cores import (
    cluster,
    persistent,
    stages_and_results_bytes,
    tiles,
    variant,
)
from gpubench.model import Config, Launch, Problem

NARROW = 128
"""Columns of a narrow tile, as in the source."""


def launches(tile: Config, problem: Problem, multiprocessors: int) -> Launch:
    """As many columns in wide tiles as make the last block end first."""
    rows, columns = cluster(tile)
    blocks = rows * columns
    wide, clusters = split(
        down=-(-problem.m // (tile["BM"] * rows)),
        columns=problem.n,
        wide_columns=tile["BN"] * columns,
        narrow_columns=NARROW * columns,
        at_most=multiprocessors // blocks,
    )
    launch = persistent(tile, problem, multiprocessors)
    return replace(launch, grid=(blocks * clusters,), int_arguments=(wide,))


@cache
def split(
    *, down: int, columns: int, wide_columns: int, narrow_columns: int, at_most: int
) -> tuple[int, int]:
    """Wide tiles in a row of tiles, and the workers to take all tiles in turns.

    The longest of the workers decides; then fewer narrow tiles, as they take more bytes for each
    operation; then fewer workers, as in `even_grid`.
    """

    def narrow(wide: int) -> int:
        return -(-max(columns - wide * wide_columns, 0) // narrow_columns)

    def longest(wide: int, workers: int) -> int:
        tiles = (wide_columns,) * (down * wide) + (narrow_columns,) * (down * narrow(wide))
        return max(sum(tiles[first::workers]) for first in range(min(workers, len(tiles))))

    wide = min(
        range(-(-columns // wide_columns) + 1),
        key=lambda wide: (longest(wide, at_most), narrow(wide)),
    )
    best = longest(wide, at_most)
    return wide, next(n for n in range(1, at_most + 1) if longest(wide, n) == best)


VARIANT = variant(
    idea="256×192 a block and less from memory; narrower last columns let all blocks end together",
    after="wgmma_deferred",
    tiles=tiles(
        rows=(256,),
        columns=(192,),
        stages=(2, 3),
        cluster=("1x1", "1x2"),
        group=(8, 16),
        default=("256x192x64/s3/cluster=1x2/group=16", "256x192x64/s3/cluster=1x2/group=8"),
        shared_bytes=stages_and_results_bytes,
    ),
    launches=launches,
)
