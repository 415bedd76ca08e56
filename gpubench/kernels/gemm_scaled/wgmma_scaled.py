from collections.abc import Iterable
from dataclasses import replace

from gpubench.kernels import tensor_cores
from gpubench.kernels.fitted_tile import (
    PAIRS,
    RESIDENT,
    ROWS_BY_8,
    maps,
    stage_bytes,
    why_not_in_group,
)
from gpubench.kernels.gemm_scaled.operation import BLOCK, by_blocks
from gpubench.kernels.tensor_cores import (
    BYTES_STEP,
    MAX_DYNAMIC_BYTES,
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
"""Maximum number of sums of a thread, including two pieces that leave the tensor core."""

A_SCALES, RESULT = 2, 4  # indices of the kernel's arrays

TILE_ARGUMENTS = "{BM}, {BN}, {BK}, {stages}, {cluster}, {group}"

UPRIGHT = (64, 128)  # rows of tiles that are not transposed
COLUMNS = (64, 128, 192, 256)

PICKS = 4  # number of sizes of tiles that are picked for a problem

STEP_CLOCKS = {
    (64, 64): 385,
    (64, 128): 556,
    (64, 256): 680,
    (128, 64): 558,
    (128, 128): 640,
    (128, 192): 1145,
    (128, 256): 1463,
}
"""Clocks of a step of upright tiles, by their rows and columns, at 9 shapes on an H200. Tiles of
one piece have two pieces under way."""

BOX_BYTES = 2 * PIECE_ROWS * ROW_BYTES  # of results of a warpgroup in upright tiles

MULTIPLE, PADDED_TO = 4, 32
"""A box of scales begins at a multiple of the first number, and is padded to one of the second."""


def consumers(tile: Config) -> int:
    """Return the number of warpgroups that multiply."""
    return 1 if tile["BM"] != max(UPRIGHT) and tile["BN"] == PIECE_ROWS else 2


def spare_scales(problem: Problem) -> int:
    """Return the number of scales that a box has besides those of its rows."""
    return MULTIPLE if problem.m % MULTIPLE else 0


def shared_bytes(tile: Config, spare: int = 0) -> int:
    """Return the shared memory of the stages, of boxes of results, and of scales."""
    rows, columns, stages = tile.numbers("BM", "BN", "stages")
    box = BOX_BYTES if rows in UPRIGHT else rows * ROW_BYTES
    scales = -(-(rows + spare) // PADDED_TO) * PADDED_TO
    return int(stages * (stage_bytes(rows, columns) + 4 * scales) + consumers(tile) * box)


def why_not(tile: Config) -> str | None:
    """Return why a warpgroup cannot have its part of a tile, or None."""
    rows, columns = tile.numbers("BM", "BN")
    if rows != max(UPRIGHT) and columns % BLOCK and columns != PIECE_ROWS:
        return f"{tile}: a warpgroup's columns have no single scale"
    pieces = columns // (consumers(tile) * PIECE_ROWS)
    if rows not in UPRIGHT and (needed := (pieces + 2) * rows // 2) > MAX_SUMS:
        return f"{tile}: {needed} sums a thread, more than {MAX_SUMS}"
    return why_not_in_group(tile)


def refuse(tile: Config, problem: Problem) -> str | None:
    """Also refuse scales of rows, which need no sums that leave the tensor core."""
    if problem.operation.scaled is not by_blocks:
        return "has scales of blocks only"
    if shared_bytes(tile, spare_scales(problem)) > MAX_DYNAMIC_BYTES:
        return f"{tile}: has no shared memory for M that is no multiple of {MULTIPLE}"
    return tensor_cores.refuse(tile, problem)


def launches(tile: Config, problem: Problem, multiprocessors: int) -> Launch:
    """Launch the number of resident blocks, or fewer blocks if these end together."""
    rows, columns = cluster(tile)
    blocks = rows * columns
    at_most = max(1, RESIDENT[blocks - 1] * multiprocessors // RESIDENT[0])
    a, b, c = maps(tile, problem)
    if tile["BM"] in UPRIGHT:
        c = replace(c, box=(PIECE_ROWS, c.box[1]))
    spare = spare_scales(problem)
    count = -(-problem.k // BLOCK) * problem.m
    a_scales = TensorMap(
        array=A_SCALES,
        shape=(1, count),
        box=(1, tile["BM"] + spare),
        pitch=-(-count // MULTIPLE) * MULTIPLE,
        dtype="float32",
    )
    return Launch(
        kernel=f"wgmma_scaled<{{scalar}}, {TILE_ARGUMENTS}, {spare}>",
        grid=(blocks * even_grid(clusters(tile, problem), at_most),),
        block=(128 * (consumers(tile) + 1),),
        shared_bytes=shared_bytes(tile, spare),
        tensor_maps=(a, b, replace(c, array=RESULT), a_scales),
        cluster=(blocks, 1, 1),
        pdl=True,
    )


def clocks(tile: tuple[int, int, str], problem: Problem, multiprocessors: int) -> float:
    """Return the clocks of a product with tiles of such rows, columns and pairs, to rank them."""
    rows, columns, pair = tile
    down, across = map(int, pair.split("x"))
    pairs = -(-problem.m // (rows * down)) * -(-problem.n // (columns * across))
    rounds = -(-pairs // max(1, multiprocessors // (down * across)))
    step = STEP_CLOCKS.get((rows, columns)) or 4.3 * columns + 0.025 * rows * columns
    return rounds * (-(-problem.k // BLOCK) * step + 600 + rows * columns / 20)


def picks(problem: Problem, multiprocessors: int) -> tuple[str, ...]:
    """Return the tiles that take the fewest clocks, and the fastest pair of tiles."""

    def ranked(tiles: Iterable[tuple[int, int, str]]) -> list[tuple[int, int, str]]:
        return sorted(tiles, key=lambda tile: clocks(tile, problem, multiprocessors))

    sizes = list(STEP_CLOCKS)
    if problem.m < min(UPRIGHT):
        whole = -(-problem.m // 8) * 8
        sizes += [(rows, columns) for rows in (whole, -(-whole // 16) * 8) for columns in (64, 128)]
    chosen = ranked((*size, "1x1") for size in dict.fromkeys(sizes))[:PICKS]
    pairs = ranked((*size, "2x1") for size in STEP_CLOCKS if problem.m > size[0])[:1]
    return tuple(fitting(*each, problem) for each in (*pairs, *chosen))


def fitting(rows: int, columns: int, pair: str, problem: Problem) -> str:
    """Return the configuration with as many stages as fit."""
    spare = spare_scales(problem)
    texts = (f"{rows}x{columns}x{BYTES_STEP}/s{n}/cluster={pair}/group=8" for n in range(8, 2, -1))
    return next(
        text for text in texts if shared_bytes(SPACE.read(text), spare) <= MAX_DYNAMIC_BYTES
    )


SPACE = tiles(
    rows=ROWS_BY_8,
    columns=COLUMNS,
    step=BYTES_STEP,
    stages=(3, 4, 5, 6, 7, 8),
    cluster=PAIRS,
    group=(8, 16),
    default=(
        "128x256x128/s4/cluster=1x1/group=8",
        "128x256x128/s4/cluster=2x1/group=8",
        "128x192x128/s4/cluster=1x1/group=8",
        "128x128x128/s5/cluster=1x1/group=8",
        "128x64x128/s7/cluster=1x1/group=8",
        "64x256x128/s4/cluster=1x1/group=8",
        "64x128x128/s7/cluster=1x1/group=8",
        "64x64x128/s8/cluster=1x1/group=8",
        "32x128x128/s8/cluster=1x1/group=8",
        "16x64x128/s8/cluster=1x1/group=8",
    ),
    shared_bytes=shared_bytes,
    constraint=why_not,
)

VARIANT = variant(
    idea="float8 on tensor cores, whose sums leave them every 128 values of k, scaled",
    after="scaled_tile",
    dtypes=("float8_e4m3",),
    tiles=SPACE,
    launches=launches,
    refuse=refuse,
    auto_tiles=picks,
)
