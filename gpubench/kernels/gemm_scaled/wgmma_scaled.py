from dataclasses import replace

from gpubench.kernels.fitted_tile import (
    PAIRS,
    RESIDENT,
    ROWS_BY_8,
    maps,
    stage_bytes,
    why_not_in_group,
)
from gpubench.kernels.gemm_scaled.operation import BLOCK
from gpubench.kernels.tensor_cores import (
    BYTES_STEP,
    PIECE_ROWS,
    ROW_BYTES,
    cluster,
    clusters,
    even_grid,
    tiles,
    variant,
)
from gpubench.model import Config, Launch, Problem, TensorMap

MAX_SUMS = 208
"""Maximum number of sums of a thread, with those that leave the tensor core."""

A_SCALES, RESULT = 2, 4  # indices of the kernel's arrays

ALIGNED_SCALES = 32  # scales in 128 bytes, which the TMA writes to


UPRIGHT_ROWS = 128
"""Rows of a tile whose warpgroups have rows of their own. In other tiles they have columns."""


def consumers(tile: Config) -> int:
    """Return the number of warpgroups that multiply."""
    return 1 if tile["BN"] == PIECE_ROWS and tile["BM"] != UPRIGHT_ROWS else 2


def shared_bytes(tile: Config) -> int:
    """Return the shared memory of the stages, a box of each warpgroup, and scales."""
    rows, columns, stages = tile.numbers("BM", "BN", "stages")
    scales = -(-rows // ALIGNED_SCALES) * ALIGNED_SCALES * 4
    return int(stages * (stage_bytes(rows, columns) + scales) + consumers(tile) * rows * ROW_BYTES)


def why_not(tile: Config) -> str | None:
    """Return why a warpgroup cannot have its part of a tile, or share it in this way, or None."""
    pieces = max(1, tile["BN"] // (consumers(tile) * PIECE_ROWS))
    if (needed := (pieces + 1) * tile["BM"] // 2) > MAX_SUMS:
        return f"{tile}: {needed} sums a thread, more than {MAX_SUMS}"
    return why_not_in_group(tile)


def launches(tile: Config, problem: Problem, multiprocessors: int) -> Launch:
    """Launch the number of resident blocks, or fewer blocks if these end together."""
    rows, columns = cluster(tile)
    blocks = rows * columns
    at_most = max(1, RESIDENT[blocks - 1] * multiprocessors // RESIDENT[0])
    a, b, c = maps(tile, problem)
    if tile["BM"] == UPRIGHT_ROWS:
        c = replace(c, box=(PIECE_ROWS, c.box[1]))
    count = -(-problem.k // BLOCK) * problem.m
    a_scales = TensorMap(
        array=A_SCALES, shape=(1, count), box=(1, tile["BM"]), pitch=-(-count // 4) * 4
    )
    return Launch(
        grid=(blocks * even_grid(clusters(tile, problem), at_most),),
        block=(128 * (consumers(tile) + 1),),
        shared_bytes=shared_bytes(tile),
        tensor_maps=(a, b, replace(c, array=RESULT), replace(a_scales, dtype="float32")),
        cluster=(blocks, 1, 1),
        pdl=True,
    )


VARIANT = variant(
    idea="float8 on tensor cores, whose sums leave them every 128 of k and are scaled",
    after="scaled_tile",
    dtypes=("float8_e4m3",),
    tiles=tiles(
        rows=ROWS_BY_8,
        columns=(64, 128, 256),
        step=BYTES_STEP,
        stages=(3, 4, 5, 6, 7, 8),
        cluster=PAIRS,
        group=(8, 16),
        default=(
            "128x256x128/s4/cluster=2x1/group=8",
            "128x256x128/s4/cluster=1x2/group=8",
            "128x128x128/s5/cluster=2x1/group=8",
            "64x128x128/s8/cluster=1x1/group=8",
            "64x64x128/s8/cluster=1x1/group=8",
        ),
        shared_bytes=shared_bytes,
        constraint=why_not,
    ),
    launches=launches,
)
