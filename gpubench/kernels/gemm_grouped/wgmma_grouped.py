from dataclasses import replace

from gpubench.kernels.fitted_tile import RESIDENT, TURNS, maps, turns_bytes, why_not_in_turns
from gpubench.kernels.tensor_cores import (
    MAX_DYNAMIC_BYTES,
    ROW_BYTES,
    STEP,
    cluster,
    clusters,
    tiles,
    variant,
)
from gpubench.model import Config, Launch, Problem

RESULT = 3  # index of the result among the kernel's arrays

MAX_SUMS = 192
"""Maximum number of sums of a thread, which also keeps the place of its tile."""

PICKS = 5  # number of configurations that are picked for a problem

LEAST_CLOCKS = 250  # of a step, however small its tile is
FETCHED_BYTES = 44  # bytes that a multiprocessor gets from the L2 cache in a clock


def why_not(tile: Config) -> str | None:
    """Return why a warpgroup cannot have a tile of this size, or share it, or None."""
    if (needed := tile["BM"] * tile["BN"] // 128) > MAX_SUMS:
        return f"{tile}: {needed} sums a thread, more than {MAX_SUMS}"
    return why_not_in_turns(tile)


def launches(tile: Config, problem: Problem, multiprocessors: int) -> Launch:
    """Launch the number of resident blocks, or of tiles if one group had all rows."""
    groups, *_ = problem.further
    together = problem.at((groups * problem.m, *problem.numbers[1:]))
    rows, columns = cluster(tile)
    blocks = rows * columns
    at_most = max(1, RESIDENT[blocks - 1] * multiprocessors // RESIDENT[0])
    a, b, *_, c = maps(tile, together)
    return Launch(
        grid=(blocks * min(clusters(tile, together), at_most),),
        block=(3 * 128,),
        shared_bytes=turns_bytes(tile),
        tensor_maps=(a, replace(b, batch=groups), replace(c, array=RESULT)),
        cluster=(blocks, 1, 1),
    )


def clocks(tile: tuple[int, int, int], problem: Problem, multiprocessors: int) -> float:
    """Return the clocks of a product with such tiles, which are only good enough to rank tiles.

    A tile has rows, columns, and the blocks that share its rows. Half of a group's last tile is
    wasted. A step takes as long as its multiplications, or as its bytes take from the L2 cache.
    """
    (rows, columns, across), (groups, *_) = tile, problem.further
    tile_rows = groups * max(1.0, problem.m / rows + 0.5)
    each = max(1.0, tile_rows * -(-problem.n // (columns * across)) * across / multiprocessors)
    step = max(
        rows * columns / 32 * 1.1,
        (rows / across + columns) * ROW_BYTES / FETCHED_BYTES,
        LEAST_CLOCKS,
    )
    return each * (-(-problem.k // STEP) * step + 2000) * (1 + 0.02 * (across - 1))


def picks(problem: Problem, multiprocessors: int) -> tuple[str, ...]:
    """Return the tiles of different extents that take the fewest clocks."""
    candidates = [
        (rows, columns, across)
        for rows in (8, 16, 24, *range(32, 257, 16))
        for columns in TURNS.columns
        for across in (1, 2)
        if rows * columns <= 128 * MAX_SUMS and (across == 1 or rows % 16 == 0)
    ]
    candidates.sort(key=lambda tile: clocks(tile, problem, multiprocessors))
    fastest: dict[tuple[int, int], str] = {}
    for rows, columns, across in candidates:
        room = MAX_DYNAMIC_BYTES - 2 * rows * ROW_BYTES
        stages = min(8, room // ((rows + columns) * ROW_BYTES))
        text = f"{rows}x{columns}x{STEP}/s{stages}/cluster=1x{across}"
        fastest.setdefault((rows, columns), text)
    return tuple(fastest.values())[:PICKS]


VARIANT = variant(
    idea="wgmma_pingpong of gemm: blocks stay, and go from one group of rows to the next",
    after="grouped_tile",
    tiles=tiles(
        rows=TURNS.rows,
        columns=TURNS.columns,
        stages=(3, 4, 5, 6, 7, 8),
        cluster=("1x1", "1x2"),
        default=(
            "128x128x64/s6/cluster=1x1",
            "128x128x64/s6/cluster=1x2",
            "64x128x64/s8/cluster=1x1",
            "16x128x64/s8/cluster=1x1",
        ),
        shared_bytes=turns_bytes,
        constraint=why_not,
    ),
    launches=launches,
    auto_tiles=picks,
)
