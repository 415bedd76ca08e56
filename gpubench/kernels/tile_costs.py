"""Which configuration suits a shape: the candidates of the wgmma kernels, and what each would take."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from gpubench.kernels.fitted_tile import EXTENTS, is_transposed, why_not
from gpubench.kernels.tensor_cores import MAX_DYNAMIC_BYTES, STEP, cluster, clusters
from gpubench.model import Config, Problem, Space

MAX_STAGES = 8

CLUSTERS = ("1x1", "1x2", "2x1")

RESIDENT = {1: 132, 2: 66, 3: 39, 4: 30, 5: 22, 6: 17, 7: 15, 8: 15}
"""Clusters of so many blocks that an H200 of 132 multiprocessors holds, a block each
(cudaOccupancyMaxActiveClusters)."""

MAX_CANDIDATES = 36
"""Number of candidates of a kernel, those that the model expects to be fastest."""


def resident(blocks: int, multiprocessors: int) -> int:
    """Return the number of clusters of so many blocks that the GPU holds at once."""
    return RESIDENT[blocks] * multiprocessors // RESIDENT[1]


def full_stages(rows: int, columns: int, besides: int = 0) -> int:
    """Return the number of stages that fill shared memory, at most `MAX_STAGES`."""
    stage = (rows + -(-columns // 64) * 64) * STEP * 2
    return min(MAX_STAGES, (MAX_DYNAMIC_BYTES - besides) // stage)


def sizes(problem: Problem) -> Iterator[tuple[int, int, str]]:
    """Yield rows, columns and cluster of tiles.

    Of extents that need equally many tiles, only the smallest.
    """
    for pair in CLUSTERS:
        down, across = int(pair[0]), int(pair[2])
        all_rows = _fewest(problem.m, down)
        all_columns = _fewest(problem.n, across)
        for rows in EXTENTS:
            for columns in EXTENTS:
                if columns % 64 == 0 and rows in all_rows:
                    yield rows, columns, pair
                elif rows % 64 == 0 and columns % 64 and columns in all_columns:
                    yield rows, columns, pair


def _fewest(extent: int, together: int) -> set[int]:
    """Return, for each number of tiles that cover an extent, the smallest of a tile's extents."""
    smallest: dict[int, int] = {}
    for size in EXTENTS:
        smallest.setdefault(-(-extent // (size * together)), size)
    return set(smallest.values())


def predicted_us(name: str, tile: Config, problem: Problem, multiprocessors: int) -> float:
    """Return what a product takes."""
    down, across = cluster(tile)
    splits = tile.get("splits", 1)
    rows, columns = tile.numbers("BM", "BN")
    at_once = resident(down * across * splits, multiprocessors)
    rounds: float = -(-clusters(tile, problem) // at_once)
    if name == "wgmma_split_tail" and down * across == 2:
        last = clusters(tile, problem) % at_once
        rounds -= 0.45 * (0 < 2 * last <= at_once)
    steps = -(-problem.k // STEP // splits) + 1
    clocks = max(rows * columns / 32, (rows / across + columns / down) * 128 / 55)
    clocks += 0 if is_transposed(tile) else 1
    adding = 1.5 + rows * columns * 4e-5 if splits > 1 else 0.0
    return rounds * (steps * clocks * 1.1 / 1750 + 1.2 + adding) + 2


def fitted_tiles(space: Space, problem: Problem, _multiprocessors: int) -> Iterator[Config]:
    """Yield each size of tile, alone and in pairs."""
    for rows, columns, pair in sizes(problem):
        stages = full_stages(rows, columns)
        yield space.read(f"{rows}x{columns}x64/s{stages}/cluster={pair}/group=8/pdl=1")


def split_tiles(space: Space, problem: Problem, _multiprocessors: int) -> Iterator[Config]:
    """Yield each size of tile with each number of parts."""
    for rows, columns, pair in sizes(problem):
        stages = full_stages(rows, columns)
        for splits in range(2, 9 if pair == "1x1" else 5):
            text = f"{rows}x{columns}x64/s{stages}/k{splits}/cluster={pair}/group=8/pdl=1"
            if -(-problem.k // STEP) >= 2 * splits:
                yield space.read(text)


def tail_tiles(space: Space, problem: Problem, _multiprocessors: int) -> Iterator[Config]:
    """Yield each size of tile but the smallest, alone and in pairs."""
    for rows, columns, pair in sizes(problem):
        if rows * columns >= 96 * 128 and min(rows, columns) > 64:
            stages = min(6, full_stages(rows, columns, besides=3 * 4096))
            yield space.read(f"{rows}x{columns}x64/s{stages}/cluster={pair}/group=8/pdl=1")


CANDIDATES: Mapping[str, Callable[[Space, Problem, int], Iterator[Config]]] = {
    "wgmma_fitted": fitted_tiles,
    "wgmma_split_cluster": split_tiles,
    "wgmma_split_tail": tail_tiles,
}
"""The configurations of a kernel that the model compares, by the kernel's name."""


def candidates(name: str, space: Space, problem: Problem, multiprocessors: int) -> list[Config]:
    """Return the legal configurations that the model compares for a problem."""
    choices = [
        tile
        for tile in CANDIDATES[name](space, problem, multiprocessors)
        if not why_not(tile) and space.why_not(tile) is None
    ]
    times = {tile: predicted_us(name, tile, problem, multiprocessors) for tile in choices}
    return sorted(choices, key=times.__getitem__)[:MAX_CANDIDATES]
