"""Which configuration suits a shape: the candidates of the wgmma kernels, and what each would take."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from gpubench.kernels.single_tile import EDGES, why_not
from gpubench.kernels.tensor_cores import MAX_DYNAMIC_BYTES, STEP, cluster, clusters, stages_bytes
from gpubench.model import Config, Problem, Space

MAX_STAGES = 8

CLUSTERS = ("1x1", "1x2", "2x1")

RESIDENT = {1: 132, 2: 66, 3: 39, 4: 30, 5: 22, 6: 17, 7: 15, 8: 15}
"""Clusters of so many blocks that an H200 of 132 multiprocessors holds, a block each
(cudaOccupancyMaxActiveClusters)."""

MAX_ROUNDS = 3
"""Rounds of clusters up to which dividing K is considered."""

SHARED_MULTIPROCESSOR = ((64, 64, 6), (64, 128, 4), (128, 64, 4), (64, 192, 3))
"""Rows, columns and stages with which two blocks fit a multiprocessor."""


def full_stages(rows: int, columns: int) -> int:
    """Return the number of stages that fill shared memory, at most `MAX_STAGES`."""
    return min(MAX_STAGES, MAX_DYNAMIC_BYTES // ((rows + columns) * STEP * 2))


def resident(blocks: int, multiprocessors: int) -> int:
    """Return the number of clusters of so many blocks that the GPU holds at once."""
    return RESIDENT[blocks] * multiprocessors // RESIDENT[1]


def small_tiles(space: Space) -> Iterator[Config]:
    """Each size of tile, alone and in pairs, with all of shared memory or half of it."""
    for rows in EDGES:
        for columns in EDGES:
            for pair in CLUSTERS:
                stages = full_stages(rows, columns)
                yield space.read(f"{rows}x{columns}x64/s{stages}/cluster={pair}/group=8/pdl=1")
    for rows, columns, stages in SHARED_MULTIPROCESSOR:
        yield space.read(f"{rows}x{columns}x64/s{stages}/cluster=1x1/group=8/pdl=1")


def split_tiles(space: Space, problem: Problem, multiprocessors: int) -> Iterator[Config]:
    """Each size of tile and number of parts with which all clusters run at once."""
    for rows in EDGES:
        for columns in EDGES:
            stages = full_stages(rows, columns)
            for splits in range(2, 9):
                for pair in CLUSTERS if splits <= 4 else CLUSTERS[:1]:
                    text = f"{rows}x{columns}x64/s{stages}/k{splits}/cluster={pair}/group=8/pdl=1"
                    tile = space.read(text)
                    if why_not(tile) or -(-problem.k // STEP) < 2 * splits:
                        continue
                    down, across = cluster(tile)
                    blocks = down * across * splits
                    rounds = MAX_ROUNDS if splits <= 4 and rows * columns >= 128 * 128 else 1
                    if clusters(tile, problem) <= rounds * resident(blocks, multiprocessors):
                        yield tile


def tail_tiles(space: Space) -> Iterator[Config]:
    """Each size of tile, in either pair."""
    for rows in (128, 256):
        for columns in (128, 192, 256):
            for pair in CLUSTERS[1:]:
                stages = min(6, (MAX_DYNAMIC_BYTES - 32768) // ((rows + columns) * STEP * 2))
                yield space.read(f"{rows}x{columns}x64/s{stages}/cluster={pair}/group=8/pdl=1")


CANDIDATES: Mapping[str, Callable[[Space, Problem, int], Iterator[Config]]] = {
    "wgmma_small_tiles": lambda space, _problem, _multiprocessors: small_tiles(space),
    "wgmma_split_cluster": split_tiles,
    "wgmma_split_tail": lambda space, _problem, _multiprocessors: tail_tiles(space),
}
"""The configurations of a kernel that the model compares, by the kernel's name."""


def candidates(name: str, space: Space, problem: Problem, multiprocessors: int) -> list[Config]:
    """Return the legal configurations that the model compares for a problem."""
    choices = CANDIDATES[name](space, problem, multiprocessors)
    return [tile for tile in choices if space.why_not(tile) is None]
