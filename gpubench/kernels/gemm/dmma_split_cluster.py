from collections.abc import Iterator
from functools import cache

from gpubench.kernels.fitted_tile import MAX_CLUSTER
from gpubench.kernels.tensor_cores import (
    block_per_part,
    stages_bytes,
    tiles,
    variant,
    why_not_in_cluster,
)
from gpubench.kernels.tile_costs import DifferentPicks, SmallTile
from gpubench.model import Config, Launch, Problem

STEP = 32
"""Values of k of a step."""

BYTES = 8
"""Bytes of an element."""

MAX_OF_FOUR_WARPS = 96 * 64
"""Maximum elements of a tile that four warps multiply. Eight warps multiply larger tiles."""

FOUR_WARPS, EIGHT_WARPS = 4, 8

HALF_OF_SHARED_BYTES = 112 * 1024
"""Dynamic shared memory with which two blocks fit on a multiprocessor."""

PADDING_BYTES = 32
"""Padding of a row of sums, as in the source."""


def warps(tile: Config) -> int:
    """Return the number of warps that multiply."""
    return FOUR_WARPS if tile["BM"] * tile["BN"] <= MAX_OF_FOUR_WARPS else EIGHT_WARPS


def shared_bytes(tile: Config) -> int:
    """Return the shared memory of the stages, and later of sums for the other parts."""
    sums = tile["BM"] * (tile["BN"] * BYTES + PADDING_BYTES) if tile["splits"] > 1 else 0
    return int(max(stages_bytes(tile, BYTES), sums))


def why_not(tile: Config) -> str | None:
    """Return why a block cannot have a tile, or a cluster cannot have its blocks, or None."""
    if warps(tile) == EIGHT_WARPS and tile["BM"] % 32 and tile["BN"] % 64:
        return f"{tile}: eight warps take rows by 32, or columns by 64"
    return why_not_in_cluster(tile)


def launches(tile: Config, problem: Problem, _multiprocessors: int) -> Launch:
    """Return a launch of one block per tile and part of K."""
    threads = 32 * warps(tile) + 128
    return block_per_part(tile, problem, threads=threads, shared_bytes=shared_bytes(tile))


def shared_clocks(tile: Config) -> float:
    """Return the clocks in which a step's operands pass through shared memory, 128 bytes each.

    For 16 values of k, a warp loads two pairs for each 8 rows and four pairs for each 16 columns,
    of 512 bytes. The TMA writes each operand once.
    """
    rows, columns, depth = tile.numbers("BM", "BN", "BK")
    by_rows = columns % 64 or (rows % 32 == 0 and rows >= columns)
    down = 4 if warps(tile) == EIGHT_WARPS and by_rows else 2
    loads = 2 * rows / down / 8 + 4 * columns / (warps(tile) / down) / 16
    return warps(tile) * loads * 4 * depth / 16 + (rows + columns) * depth * BYTES / 128


TILES = tiles(
    rows=range(32, 129, 16),
    columns=(32, 64, 96, 128),
    step=STEP,
    stages=(2, 3, 4, 5, 6),
    splits=range(1, MAX_CLUSTER + 1),
    cluster=("1x1", "1x2", "2x1"),
    default=(
        "64x64x32/s3/k2/cluster=1x1",
        "96x64x32/s2/k4/cluster=1x1",
        "128x128x32/s3/k1/cluster=1x2",
    ),
    shared_bytes=shared_bytes,
    constraint=why_not,
)


@cache
def configurations() -> tuple[SmallTile, ...]:
    """Return the configurations that the model compares, each with as many stages as fit."""
    widest: dict[tuple[object, ...], Config] = {}
    for tile in TILES:
        if warps(tile) > FOUR_WARPS or shared_bytes(tile) <= HALF_OF_SHARED_BYTES:
            without = tuple(value for name, value in tile.items() if name != "stages")
            widest[without] = tile
    return tuple(
        SmallTile.of(
            tile,
            warps=warps(tile),
            resident=EIGHT_WARPS // warps(tile),
            issued=1,
            shared_clocks=shared_clocks(tile),
        )
        for tile in widest.values()
    )


def choices(problem: Problem) -> Iterator[SmallTile]:
    """Yield configurations whose parts of K have at least two steps each."""
    max_splits = max(problem.k // (2 * STEP), 1)
    return (choice for choice in configurations() if choice.tile["splits"] <= max_splits)


VARIANT = variant(
    idea="float64 for any shape: small tiles, and K in parts by the blocks of a cluster",
    after="dmma",
    dtypes=("float64",),
    tiles=TILES,
    launches=launches,
    auto_tiles=DifferentPicks(choices),
)
