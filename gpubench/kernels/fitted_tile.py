"""Threads, memory and launches of the kernels whose tiles vary by 16 rows or columns.

The numbers are the same as in `fitted_tile.cuh` and `split_sums.cuh`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpubench.kernels.tensor_cores import (
    BYTES_STEP,
    DTYPES,
    ROW_BYTES,
    STEP,
    A,
    B,
    C,
    block_per_part,
    cluster,
    clusters,
    even_grid,
    row_major_map,
    tiles,
    why_not_in_cluster,
)
from gpubench.model import Config, Launch, Problem, Space, TensorMap
from gpubench.model.variant import PORTABLE_CLUSTER

EXTENTS = range(64, 257, 16)
"""Rows and columns of a tile. One extent is a multiple of 64, the rows of an instruction. The other
is the columns of an instruction."""

ROWS_BY_16, ROWS_BY_8 = range(16, 257, 16), range(8, 257, 8)
"""Rows of a tile whose columns are a multiple of 64. Kernels that store results by boxes have rows
by 8. A tile has less than 64 rows only where one row of tiles covers C."""

PAIRS = ("1x1", "1x2", "2x1")
CLUSTERS = (*PAIRS, "1x4", "4x1", "2x2", "2x4", "4x2")
"""Rows and columns of blocks that share operands: at most two blocks, or at most eight."""

RESIDENT = (132, 66, 39, 30, 22, 17, 15, 15, 9, 7, 7, 7, 7, 7, 7, 7)
"""Number of clusters of 1 to 16 blocks that an H200 of 132 multiprocessors holds, with one block on
each (cudaOccupancyMaxActiveClusters)."""

L2_BYTES = 50_000_000
"""Bytes of the L2 cache of an H100. A kernel lets weights leave the cache first from half of this
on, where that was faster."""

MAX_SUMS_OF_TURNS = 208  # maximum number of sums of a thread, where a warpgroup has a tile alone
STAGES = range(3, 13)  # numbers of stages that are tried, where a kernel names no others

BY_64 = 64

SENT_COLUMNS = {BYTES_STEP: 8, 32: 32}
"""A block of a cluster sends a multiple of this number of columns of B, by the values of k in a
step: in 8 bits B lies along k, and the swizzle has 8 rows; in TF32 boxes have 32 columns."""

MAX_CLUSTER, MAX_LARGE_CLUSTER = PORTABLE_CLUSTER, 16
"""Maximum number of blocks in a cluster: on every GPU with clusters, and on H100 and H200 (CUDA C++
Programming Guide)."""


@dataclass(frozen=True, kw_only=True)
class Form:
    """What configurations a kernel has, and how its blocks take tiles."""

    dtypes: tuple[str, ...] = DTYPES
    rows: Sequence[int] = EXTENTS
    columns: Sequence[int] = EXTENTS
    step: int = STEP  # values of k of a step, in rows of 128 bytes
    splits: Sequence[int] = (1,)  # parts of K, by the blocks of a cluster
    clusters: tuple[str, ...] = CLUSTERS
    large_clusters: tuple[tuple[int, int, int], ...] = ()
    """Rows, columns and parts of K of the clusters of more than eight blocks that are compared."""

    in_turns: bool = False  # whether blocks stay, and each of two warpgroups has tiles of its own
    odd_rows: bool = False
    """Whether it takes only problems with rows that are no multiple of 16 bytes."""

    sends_equal_rows: bool = False
    """Whether each block of a cluster sends an equal part of A's rows at each step."""

    options: str = "/group=8"  # what a configuration says after its cluster

    def compares(self, down: int, across: int, parts: int) -> bool:
        """Return whether the model compares clusters with these blocks and parts of K."""
        small = down * across * parts <= MAX_CLUSTER
        return small or (down, across, parts) in self.large_clusters

    def tiles(self, *, stages: Sequence[int] = STAGES, **further: Any) -> Space:
        """Return the space of the form's tiles. `further` are arguments of `tensor_cores.tiles`."""
        parts: dict[str, Any] = {"splits": self.splits} if len(self.splits) > 1 else {}
        extents: dict[str, Any] = {"rows": self.rows, "columns": self.columns, "step": self.step}
        return tiles(**extents, stages=stages, **parts, cluster=self.clusters, **further)


WHOLE = Form(rows=ROWS_BY_8, options="/group=8/pdl=1")
TURNS = Form(rows=ROWS_BY_8, columns=(64, 128, 192, 256), in_turns=True, options="/group=4")
SPLIT = Form(
    rows=ROWS_BY_16,
    splits=range(2, MAX_CLUSTER + 1),
    large_clusters=((4, 1, 4),),
    options="/group=8/pdl=1",
)
BYTES = Form(
    dtypes=("int8", "float8_e4m3"),
    rows=(8, 16, 24, *ROWS_BY_16[1:]),  # instructions of int8 have no 40 or 56 columns
    step=BYTES_STEP,
    splits=range(1, MAX_CLUSTER + 1),
    options="",
)
BYTES_TURNS = replace(TURNS, dtypes=BYTES.dtypes, step=BYTES_STEP, options="/group=8")
TF32 = Form(
    dtypes=("tf32",),
    columns=(64, 128),
    step=32,
    splits=range(1, MAX_CLUSTER + 1),
    clusters=(*PAIRS, "1x4", "4x1"),
    sends_equal_rows=True,
    options="",
)

ANY_ROWS = replace(SPLIT, splits=range(1, MAX_CLUSTER + 1), large_clusters=(), odd_rows=True)

FORMS = (WHOLE, TURNS, SPLIT, BYTES, BYTES_TURNS, TF32, ANY_ROWS)
"""All forms. Forms for the same precision are compared with each other."""

MAX_SUMS = {1: 128, 2: 192, 3: 96}
"""Maximum number of sums of a thread, by number of warpgroups that multiply: 240 registers of a
thread hold 192 sums beside addresses, 160 registers hold 96."""

FREE_SUMS = {1: 128, 2: 128, 3: 64}
"""Maximum number of sums of a thread without moving registers between warpgroups."""

SUM_BYTES = 4

UNIT = 16  # rows of a tile that parts of K add up at once


def consumers(rows: int, columns: int) -> int:
    """Return the number of warpgroups that multiply a tile."""
    extent = rows if columns % BY_64 else columns  # that is a multiple of 64
    return 1 if extent == BY_64 else 3 if extent % (3 * BY_64) == 0 else 2


def sums(rows: int, columns: int) -> int:
    """Return the number of sums of a thread."""
    return rows * columns // (128 * consumers(rows, columns))


def stage_bytes(rows: int, columns: int) -> int:
    """Return the shared memory of a stage."""
    return (rows + -(-columns // BY_64) * BY_64) * ROW_BYTES


def threads(tile: Config) -> int:
    """Return the threads of a block: one warp fetches, or a warpgroup that gives up registers."""
    extents = tile.numbers("BM", "BN")
    fetching = 128 if sums(*extents) > FREE_SUMS[consumers(*extents)] else 32
    return 128 * consumers(*extents) + fetching


def shared_bytes(tile: Config) -> int:
    """Return the shared memory of the stages, and later of results or of sums for other blocks."""
    rows, columns, stages = tile.numbers("BM", "BN", "stages")
    each = SUM_BYTES if "splits" in tile else 2
    return int(max(stages * stage_bytes(rows, columns), rows * columns * each))


def why_not(tile: Config) -> str | None:
    """Return why a block cannot have a tile of this size or a cluster of this shape, or None."""
    rows, columns = tile.numbers("BM", "BN")
    if rows % BY_64 and columns % BY_64:
        return f"{tile}: neither rows nor columns are a multiple of {BY_64}"
    if (needed := sums(rows, columns)) > (max_sums := MAX_SUMS[consumers(rows, columns)]):
        return f"{tile}: {needed} sums a thread, more than {max_sums}"
    if rows % UNIT and tile.get("splits", 1) > 1:
        return f"{tile}: K in parts needs a multiple of {UNIT} rows"
    large = tile["BK"] == STEP and tile.get("splits", 1) > 1
    return why_not_in_group(tile, MAX_LARGE_CLUSTER if large else MAX_CLUSTER)


def why_not_shared(tile: Config) -> str | None:
    """Return why a cluster's blocks cannot send equal parts of a tile's operands, or None."""
    _, columns = cluster(tile)
    if tile["BM"] % (8 * columns):
        return f"{tile}: {columns} blocks cannot send multiples of 8 of {tile['BM']} rows"
    return why_not_in_group(tile)


def why_not_in_group(tile: Config, at_most: int = MAX_CLUSTER) -> str | None:
    """Return why a cluster's blocks cannot share a tile's operands, or None.

    Rows that are no multiple of 8 for each block are sent by the blocks in turns.
    """
    rows, _ = cluster(tile)
    if tile["BN"] % ((sent_columns := SENT_COLUMNS.get(tile["BK"], 1)) * rows):
        return (
            f"{tile}: {rows} blocks cannot send multiples of {sent_columns} of {tile['BN']} columns"
        )
    return why_not_in_cluster(tile, at_most)


def box_of_a(rows: int, across: int) -> int:
    """Return the rows of A that a block sends by a copy: its part, or all where blocks take turns.

    The swizzle has 8 rows, so parts are multiples of them.
    """
    return rows if rows % (8 * across) else rows // across


def box_of_b(columns: int, down: int) -> int:
    """Return the number of rows of 128 bytes of B that one of `down` blocks sends by a copy."""
    rows = columns // down
    return BY_64 // down if columns % BY_64 else min(BY_64, rows & -rows)


def outgrows_l2(problem: Problem) -> bool:
    """Return whether B is larger than the L2 cache, so that each launch reads it from memory."""
    return problem.n * problem.k * problem.precision.item_bytes > L2_BYTES


def maps(tile: Config, problem: Problem) -> tuple[TensorMap, ...]:
    """Return the maps of A and B, of the last columns of B where it lies along n, and of C.

    A box is the part of a step that a block sends, or a piece of the results.
    """
    m, n, k = problem.m, problem.n, problem.k
    rows, columns = cluster(tile)
    width = ROW_BYTES // problem.precision.item_bytes
    a = row_major_map(A, (m, k), (box_of_a(tile["BM"], columns), width))
    c_rows = BY_64 if tile["BN"] % BY_64 else tile["BM"]
    c = row_major_map(C, (m, n), (c_rows, ROW_BYTES // problem.precision.result_bytes))
    if "B" in problem.column_major:
        of_b = [row_major_map(B, (n, k), (tile["BN"] // rows, width))]
    else:
        boxes = box_of_b(tile["BN"], rows), tile["BK"] // rows
        widths = width, tile["BN"] % width or width
        of_b = [row_major_map(B, (k, n), box) for box in zip(boxes, widths, strict=True)]
    if tile["BM"] * rows >= m and outgrows_l2(problem):  # each launch reads B once
        of_b = [replace(tensor_map, l2_promotion_bytes=256) for tensor_map in of_b]
    return a, *of_b, c


def launches(tile: Config, problem: Problem, _multiprocessors: int) -> Launch:
    """Return a launch of one block per tile and part of K."""
    every = maps(tile, problem)
    return replace(
        block_per_part(tile, problem, threads=threads(tile), shared_bytes=shared_bytes(tile)),
        tensor_maps=every[:-1] if "splits" in tile else every,
    )


def turns_bytes(tile: Config) -> int:
    """Return the shared memory of the stages, and of a box of results of each warpgroup."""
    rows, columns, stages = tile.numbers("BM", "BN", "stages")
    return int(stages * stage_bytes(rows, columns) + 2 * rows * ROW_BYTES)


def why_not_in_turns(tile: Config) -> str | None:
    """Return why a warpgroup cannot have a tile of this size, or share it in this way, or None."""
    if (needed := tile["BM"] * tile["BN"] // 128) > MAX_SUMS_OF_TURNS:
        return f"{tile}: {needed} sums a thread, more than {MAX_SUMS_OF_TURNS}"
    return why_not_in_group(tile)


def turns(tile: Config, problem: Problem, multiprocessors: int) -> Launch:
    """Launch the number of resident blocks, or fewer blocks if these end together."""
    rows, columns = cluster(tile)
    blocks = rows * columns
    at_most = max(1, RESIDENT[blocks - 1] * multiprocessors // RESIDENT[0])
    a, b, *_, c = maps(tile, problem)
    c = replace(c, box=(2 * tile["BM"] // problem.precision.result_bytes, c.box[1]))
    return Launch(
        grid=(blocks * even_grid(problem.batch * clusters(tile, problem), at_most),),
        block=(3 * 128,),
        shared_bytes=turns_bytes(tile),
        tensor_maps=(a, b, c),
        cluster=(blocks, 1, 1),
    )
