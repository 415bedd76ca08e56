from dataclasses import replace

from gpubench.kernels.fitted_tile import RESIDENT, TURNS, maps, turns_bytes, why_not_in_turns
from gpubench.kernels.tensor_cores import (
    MAX_DYNAMIC_BYTES,
    ROW_BYTES,
    cluster,
    clusters,
    tiles,
    variant,
)
from gpubench.model import Config, Launch, Problem

RESULT = 3  # index of the result among the kernel's arrays

MAX_SUMS = 192
"""Maximum number of sums of a thread, which also has the place of its tile among the groups."""

PICKS = 4  # number of configurations that are picked for a problem


def why_not(tile: Config) -> str | None:
    """Return why a warpgroup cannot have a tile of this size, or share it, or None."""
    if (needed := tile["BM"] * tile["BN"] // 128) > MAX_SUMS:
        return f"{tile}: {needed} sums a thread, more than {MAX_SUMS}"
    return why_not_in_turns(tile)


def launches(tile: Config, problem: Problem, multiprocessors: int) -> Launch:
    """Launch the number of resident blocks, or of tiles if all groups but one were empty."""
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


def elements(size: tuple[int, int], problem: Problem, multiprocessors: int) -> float:
    """Return the number of elements that a multiprocessor computes, if half of a tile is too much.

    A tile's end counts as 2,000 elements.
    """
    (rows, columns), (groups, *_) = size, problem.further
    tile_rows = groups * (problem.m / rows + 0.5)
    each = max(1.0, tile_rows * -(-problem.n // columns) / multiprocessors)
    return each * (rows * columns * max(1.0, 0.9 + 10 / rows) + 2000)


def picks(problem: Problem, multiprocessors: int) -> tuple[str, ...]:
    """Return the tiles with the fewest elements of a multiprocessor, with different areas."""
    sizes = [
        (rows, columns)
        for rows in TURNS.rows
        for columns in TURNS.columns
        if rows * columns <= 128 * MAX_SUMS
    ]
    sizes.sort(key=lambda size: elements(size, problem, multiprocessors))
    chosen = []
    for rows, columns in sizes[:PICKS]:
        room = MAX_DYNAMIC_BYTES - 2 * rows * ROW_BYTES
        stages = min(8, room // ((rows + columns) * ROW_BYTES))
        pair = "1x2" if rows % 16 == 0 and problem.n > columns else "1x1"
        chosen.append(f"{rows}x{columns}x64/s{stages}/cluster={pair}")
    return tuple(chosen)


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
