"""Threads, memory and launches of the kernels whose tiles vary in steps of 16 rows or columns.

The constants must equal the constants of `fitted_tile.cuh` and `split_sums.cuh`.
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
"""Numbers of rows and columns of a tile. One of the two numbers is a multiple of 64, the number of
rows of a tensor core instruction. The other number is the instruction's number of columns."""

ROWS_BY_16, ROWS_BY_8 = range(16, 257, 16), range(8, 257, 8)
"""Numbers of rows of a tile whose columns are a multiple of 64, in steps of 16 or 8. Kernels that
store results by boxes use steps of 8. A tile has fewer than 64 rows only if one row of tiles covers
C."""

PAIRS = ("1x1", "1x2", "2x1")
CLUSTERS = (*PAIRS, "1x4", "4x1", "2x2", "2x4", "4x2")
"""Clusters, as rows × columns of the blocks that share operands. `PAIRS` has at most two blocks,
and `CLUSTERS` at most eight."""

RESIDENT = (132, 66, 39, 30, 22, 17, 15, 15, 9, 7, 7, 7, 7, 7, 7, 7)
"""Number of clusters that an H200 of 132 multiprocessors holds, for clusters of 1 to 16 blocks with
one block per multiprocessor (cudaOccupancyMaxActiveClusters)."""

L2_BYTES = 50_000_000
"""Bytes of the L2 cache of an H100. If B has at least half of this size, some kernels mark the
lines of B for early eviction, where measurements showed that this is faster."""

MAX_SUMS_OF_TURNS = 208  # maximum number of sums of a thread if a warpgroup has a tile of its own
STAGES = range(3, 13)  # numbers of stages to try, unless a kernel names other numbers

BY_64 = 64

SENT_COLUMNS = {BYTES_STEP: 8, 32: 32}
"""The number of columns of B that a block of a cluster sends is a multiple of this number. The key
is the number of values of k in a step. With 8 bits, B lies along k, and the swizzle has 8 rows.
With TF32, boxes have 32 columns."""

MAX_CLUSTER, MAX_LARGE_CLUSTER = PORTABLE_CLUSTER, 16
"""Maximum number of blocks in a cluster. `MAX_CLUSTER` is the limit on every GPU with clusters, and
`MAX_LARGE_CLUSTER` is the limit on H100 and H200 (CUDA C++ Programming Guide)."""


@dataclass(frozen=True, kw_only=True)
class Form:
    """The configurations of a kernel, and how the blocks of the kernel share the tiles."""

    dtypes: tuple[str, ...] = DTYPES
    rows: Sequence[int] = EXTENTS
    columns: Sequence[int] = EXTENTS
    step: int = STEP  # number of values of k in a step: 128 bytes of a row
    splits: Sequence[int] = (1,)  # numbers of parts of K; a part has its own block in the cluster
    clusters: tuple[str, ...] = CLUSTERS
    large_clusters: tuple[tuple[int, int, int], ...] = ()
    """Clusters of more than eight blocks that the model compares. Each tuple has the cluster's
    rows, columns and parts of K."""

    in_turns: bool = False
    """Whether blocks are persistent, and each of two warpgroups has tiles of its own."""

    odd_rows: bool = False
    """Whether the kernel takes only problems whose rows are not a multiple of 16 bytes."""

    sends_equal_rows: bool = False
    """Whether each block of a cluster sends an equal part of A's rows in each step."""

    options: str = "/group=8"  # the text of a configuration after its cluster

    def compares(self, down: int, across: int, parts: int) -> bool:
        """Return whether the model compares clusters with these rows, columns and parts of K."""
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
"""All forms. The model compares forms for the same precision with each other."""

MAX_SUMS = {1: 128, 2: 192, 3: 96}
"""Maximum number of sums of a thread, by the number of warpgroups that multiply. A thread with 240
registers can have 192 sums besides addresses. A thread with 160 registers can have 96 sums."""

FREE_SUMS = {1: 128, 2: 128, 3: 64}
"""Maximum number of sums of a thread for which no warpgroup gives registers to other warpgroups."""

SUM_BYTES = 4

UNIT = 16  # if K is in parts, a tile's number of rows is a multiple of this


def consumers(rows: int, columns: int) -> int:
    """Return the number of warpgroups that multiply a tile."""
    extent = rows if columns % BY_64 else columns  # the extent that is a multiple of 64
    return 1 if extent == BY_64 else 3 if extent % (3 * BY_64) == 0 else 2


def sums(rows: int, columns: int) -> int:
    """Return the number of sums that a thread keeps."""
    return rows * columns // (128 * consumers(rows, columns))


def stage_bytes(rows: int, columns: int) -> int:
    """Return the bytes of shared memory that a stage takes."""
    return (rows + -(-columns // BY_64) * BY_64) * ROW_BYTES


def threads(tile: Config) -> int:
    """Return the number of threads of a block.

    One warp fetches operands. If threads need many registers, a warpgroup fetches operands and
    gives up registers.
    """
    extents = tile.numbers("BM", "BN")
    fetching = 128 if sums(*extents) > FREE_SUMS[consumers(*extents)] else 32
    return 128 * consumers(*extents) + fetching


def shared_bytes(tile: Config) -> int:
    """Return the bytes of shared memory for the stages, and later for results or partial sums."""
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
        return f"{tile}: {columns} blocks cannot divide {tile['BM']} rows into multiples of 8"
    return why_not_in_group(tile)


def why_not_in_group(tile: Config, at_most: int = MAX_CLUSTER) -> str | None:
    """Return why a cluster's blocks cannot share a tile's operands, or None.

    If the blocks cannot send multiples of 8 rows each, they take turns to send all rows.
    """
    rows, _ = cluster(tile)
    if tile["BN"] % ((sent_columns := SENT_COLUMNS.get(tile["BK"], 1)) * rows):
        return (
            f"{tile}: {rows} blocks cannot divide {tile['BN']} columns into multiples of "
            f"{sent_columns}"
        )
    return why_not_in_cluster(tile, at_most)


def box_of_a(rows: int, across: int) -> int:
    """Return the number of rows of A that a block sends by a copy.

    A block sends its part of the rows, or all rows if blocks take turns. A part is a multiple of 8
    rows, because the swizzle has 8 rows.
    """
    return rows if rows % (8 * across) else rows // across


def box_of_b(columns: int, down: int) -> int:
    """Return the number of 128-byte rows of B that a block sends by a copy.

    Each of `down` blocks of a cluster sends an equal part of B.
    """
    rows = columns // down
    return BY_64 // down if columns % BY_64 else min(BY_64, rows & -rows)


def outgrows_l2(problem: Problem) -> bool:
    """Return whether B is larger than the L2 cache, so that each launch reads it from memory."""
    return problem.n * problem.k * problem.precision.item_bytes > L2_BYTES


def maps(tile: Config, problem: Problem) -> tuple[TensorMap, ...]:
    """Return the tensor maps of A, B and C.

    If B lies along n, the last columns of B have another map. A box is the part of a step that a
    block sends, or a piece of the results.
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
    if tile["BM"] * rows >= m and outgrows_l2(problem):  # each launch reads B once, from memory
        of_b = [replace(tensor_map, l2_promotion_bytes=256) for tensor_map in of_b]
    return a, *of_b, c


def launches(tile: Config, problem: Problem, _multiprocessors: int) -> Launch:
    """Return a launch that has one block for each tile and each part of K."""
    every = maps(tile, problem)
    return replace(
        block_per_part(tile, problem, threads=threads(tile), shared_bytes=shared_bytes(tile)),
        tensor_maps=every[:-1] if "splits" in tile else every,
    )


def turns_bytes(tile: Config) -> int:
    """Return the bytes of shared memory for the stages and for each warpgroup's box of results."""
    rows, columns, stages = tile.numbers("BM", "BN", "stages")
    return int(stages * stage_bytes(rows, columns) + 2 * rows * ROW_BYTES)


def why_not_in_turns(tile: Config) -> str | None:
    """Return why a warpgroup cannot have a tile of this size or this cluster, or None."""
    if (needed := tile["BM"] * tile["BN"] // 128) > MAX_SUMS_OF_TURNS:
        return f"{tile}: {needed} sums a thread, more than {MAX_SUMS_OF_TURNS}"
    return why_not_in_group(tile)


def turns(tile: Config, problem: Problem, multiprocessors: int) -> Launch:
    """Return a launch with the number of blocks that the GPU holds at once.

    The launch has fewer blocks if these need no more rounds.
    """
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
