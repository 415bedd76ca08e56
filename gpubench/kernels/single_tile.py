"""What the descriptors share whose blocks compute one tile each: threads, memory, launches.

The numbers are those of `single_tile.cuh` and `split_sums.cuh`.
"""

from __future__ import annotations

from gpubench.kernels.tensor_cores import (
    PIECE_ROWS,
    ROW_BYTES,
    cluster,
    clusters,
    consumers,
    maps,
    operand_maps,
    stages_bytes,
)
from gpubench.model import Config, Launch, Problem

EDGES = (64, 128, 192, 256)
"""Rows and columns of a tile."""

MAX_CLUSTER = 8
"""Blocks of a cluster that every GPU with clusters can hold (CUDA C++ Programming Guide)."""

MAX_SUMS_OF_THREE = 96
"""Sums of a thread where three warpgroups multiply, which have 160 registers each."""

SUM_BYTES = 4


def sums(tile: Config) -> int:
    """Sums of a thread."""
    bm, bn = tile.numbers("BM", "BN")
    return int(bm * bn // (128 * consumers(tile)))


def threads(tile: Config) -> int:
    """Threads of a block: a warp fetches, or a warpgroup where it gives registers to others."""
    moves_registers = sums(tile) > (64 if consumers(tile) == 3 else 128)  # noqa: PLR2004
    return 128 * consumers(tile) + (128 if moves_registers else 32)


def shared_bytes(tile: Config) -> int:
    """Shared memory of the stages, and later of results, or of sums on their way to other blocks."""
    each = SUM_BYTES if tile.get("splits", 1) > 1 else 2
    return max(stages_bytes(tile, ROW_BYTES // tile["BK"]), tile["BM"] * tile["BN"] * each)


def why_not(tile: Config) -> str | None:
    """Why a block cannot have a tile of this size, or a cluster this shape; None if it can."""
    rows, columns = cluster(tile)
    if consumers(tile) == 3 and sums(tile) > MAX_SUMS_OF_THREE:  # noqa: PLR2004
        return f"{tile}: {sums(tile)} sums a thread, over {MAX_SUMS_OF_THREE} with 192 rows"
    if tile["BN"] // PIECE_ROWS % rows:
        return f"{tile}: {rows} blocks cannot each fetch the same number of 64 columns"
    if (blocks := rows * columns * tile.get("splits", 1)) > MAX_CLUSTER:
        return f"{tile}: {blocks} blocks in a cluster, over {MAX_CLUSTER}"
    return None


def launches(tile: Config, problem: Problem, _multiprocessors: int) -> Launch:
    """One block per tile and part of K."""
    rows, columns = cluster(tile)
    splits = tile.get("splits", 1)
    blocks = rows * columns * splits
    return Launch(
        grid=(blocks * clusters(tile, problem),),
        block=(threads(tile),),
        shared_bytes=shared_bytes(tile),
        tensor_maps=(operand_maps if splits > 1 else maps)(tile, problem),
        cluster=(blocks, 1, 1),
        pdl=bool(tile["pdl"]),
    )

