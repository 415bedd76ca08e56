"""Threads, memory and launches of the kernels whose tiles vary by 16 rows or columns.

The numbers are the same as in `fitted_tile.cuh` and `split_sums.cuh`.
"""

from __future__ import annotations

from gpubench.kernels.tensor_cores import (
    ROW_BYTES,
    A,
    B,
    C,
    cluster,
    clusters,
    row_major_map,
)
from gpubench.model import Config, Launch, Problem, TensorMap

EXTENTS = range(64, 257, 16)
"""Rows and columns of a tile. One extent is a multiple of 64, the rows of an instruction. The other
is the columns of an instruction."""

ROWS_BY_8 = range(64, 257, 8)
"""Rows of a tile whose columns are a multiple of 64, in kernels that store results by boxes."""

CLUSTERS = ((1, 1), (1, 2), (2, 1), (1, 4), (4, 1), (2, 2), (2, 4), (4, 2))
"""Rows and columns of blocks that share operands."""

RESIDENT = (132, 66, 39, 30, 22, 17, 15, 15)
"""Number of clusters of 1 to 8 blocks that an H200 of 132 multiprocessors holds, with one block on
each (cudaOccupancyMaxActiveClusters)."""

MAX_SUMS_OF_TURNS = 208
"""Maximum number of sums of a thread, where a warpgroup has a tile alone."""

BY_64 = 64

MAX_CLUSTER = 8
"""Maximum number of blocks in a cluster on every GPU with clusters (CUDA C++ Programming Guide)."""

MAX_SUMS = {1: 128, 2: 192, 3: 96}
"""Maximum number of sums of a thread, by number of warpgroups that multiply: 240 registers of a
thread hold 192 sums beside addresses, 160 registers hold 96."""

FREE_SUMS = {1: 128, 2: 128, 3: 64}
"""Maximum number of sums of a thread without moving registers between warpgroups."""

SUM_BYTES = 4


def is_transposed(tile: Config) -> bool:
    """Return whether a block multiplies the transposed problem, with any multiple of 16 rows."""
    return bool(tile["BN"] % BY_64 == 0)


def consumers(tile: Config) -> int:
    """Return the number of warpgroups that multiply."""
    by_64 = tile["BN"] if is_transposed(tile) else tile["BM"]
    return 1 if by_64 == BY_64 else 3 if by_64 % (3 * BY_64) == 0 else 2


def sums(tile: Config) -> int:
    """Return the number of sums of a thread."""
    rows, columns = tile.numbers("BM", "BN")
    return int(rows * columns // (128 * consumers(tile)))


def threads(tile: Config) -> int:
    """Return the threads of a block: one warp fetches, or a warpgroup that gives up registers."""
    fetching = 128 if sums(tile) > FREE_SUMS[consumers(tile)] else 32
    return 128 * consumers(tile) + fetching


def stages_bytes(tile: Config) -> int:
    """Return the shared memory of the stages."""
    rows, columns, stages = tile.numbers("BM", "BN", "stages")
    return int(stages * (rows + -(-columns // BY_64) * BY_64) * ROW_BYTES)


def shared_bytes(tile: Config) -> int:
    """Return the shared memory of the stages, and later of results or of sums for other blocks."""
    each = SUM_BYTES if tile.get("splits", 1) > 1 else 2
    return int(max(stages_bytes(tile), tile["BM"] * tile["BN"] * each))


def why_not(tile: Config) -> str | None:
    """Return why a block cannot have a tile of this size or a cluster of this shape, or None."""
    if tile["BM"] % BY_64 and tile["BN"] % BY_64:
        return f"{tile}: neither rows nor columns are a multiple of {BY_64}"
    if (needed := sums(tile)) > (most := MAX_SUMS[consumers(tile)]):
        return f"{tile}: {needed} sums a thread, over {most}"
    return why_not_shared(tile)


def why_not_shared(tile: Config) -> str | None:
    """Return why a cluster's blocks cannot share a tile's operands, or None."""
    rows, columns = cluster(tile)
    if tile["BM"] % (8 * columns):
        return f"{tile}: {columns} blocks cannot send multiples of 8 of {tile['BM']} rows"
    if (blocks := rows * columns * tile.get("splits", 1)) > MAX_CLUSTER:
        return f"{tile}: {blocks} blocks in a cluster, over {MAX_CLUSTER}"
    return None


def box_of_b(columns: int, down: int) -> int:
    """Return the rows of 128 bytes of B that a block of `down` sends by a copy."""
    rows = columns // down
    return BY_64 // down if columns % BY_64 else min(BY_64, rows & -rows)


def maps(tile: Config, problem: Problem, result_rows: int) -> tuple[TensorMap, ...]:
    """Return the maps of A, of B and its last columns, and of C.

    A box is the part of a step that a block sends, or `result_rows` rows of 128 bytes.
    """
    m, n, k = problem.m, problem.n, problem.k
    rows, columns = cluster(tile)
    width = ROW_BYTES // problem.precision.item_bytes
    return (
        row_major_map(A, (m, k), (tile["BM"] // columns, width)),
        row_major_map(B, (k, n), (box_of_b(tile["BN"], rows), width)),
        row_major_map(B, (k, n), (tile["BK"] // rows, tile["BN"] % width or width)),
        row_major_map(C, (m, n), (result_rows, ROW_BYTES // problem.precision.result_bytes)),
    )


def launches(tile: Config, problem: Problem, _multiprocessors: int) -> Launch:
    """Return a launch of one block per tile and part of K."""
    rows, columns = cluster(tile)
    splits = tile.get("splits", 1)
    blocks = rows * columns * splits
    every = maps(tile, problem, tile["BM"] if is_transposed(tile) else BY_64)
    return Launch(
        grid=(blocks * clusters(tile, problem),),
        block=(threads(tile),),
        shared_bytes=shared_bytes(tile),
        tensor_maps=every if splits == 1 else every[:-1],
        cluster=(blocks, 1, 1),
        pdl=bool(tile["pdl"]),
    )
