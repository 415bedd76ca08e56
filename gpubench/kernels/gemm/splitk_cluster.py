from collections.abc import Iterator
from functools import cache
from itertools import product

from gpubench.kernels.block_tiles import (
    MAX_SHARED_BYTES,
    blocks,
    padded_stages_bytes,
    threads_of,
    tiles_of_c,
    variant,
    warps_that_fit,
)
from gpubench.kernels.fitted_tile import MAX_CLUSTER, MAX_LARGE_CLUSTER
from gpubench.kernels.layouts import unaligned
from gpubench.kernels.tile_costs import DifferentPicks, SmallTile
from gpubench.model import Config, Launch, Problem

ITEM_BYTES = 4
"""Number of bytes of an element, which is a float32 or an int32."""

REGISTERS = 65_536
"""Number of registers of a multiprocessor."""

RESERVED_BYTES = 1024
"""Number of bytes of shared memory that the GPU reserves for each block (CUDA C++ Programming
Guide)."""

LOAD_CLOCKS = 2
"""Number of clocks that a warp's load takes (an assumption). A thread loads 16 bytes, and a warp
has 4 or 8 different addresses."""

COPY_CLOCKS = 2
"""Number of clocks that a warp's copy of single elements of B adds. At 18 odd shapes on an H200,
the better of two picks takes 4 % longer than the fastest configuration with this term, and 5 %
without this term."""

CHUNK = 8
"""Number of values of k between two requests for copies, as in `interleaved_product.cuh`."""


def shared_bytes(tile: Config) -> int:
    """Return the number of bytes of shared memory that a block needs.

    The stages use the memory first. Later the sums of all parts of K or the results use it.
    """
    bm, bn, tn = tile.numbers("BM", "BN", "TN")
    scratch = threads_of(tile) // 32 * (16 * 8 * tn + 4)
    elements_after = bm * bn if tile["splits"] > 1 else scratch
    return max(padded_stages_bytes(tile), ITEM_BYTES * elements_after)


def why_not_together(tile: Config) -> str | None:
    """Return why the tile is illegal, or None.

    A tile needs whole warps, enough shared memory for the stages, and the same number of copies for
    each thread and chunk.
    """
    if reason := warps_that_fit(shared_bytes)(tile):
        return reason
    bm, bn, bk = tile.numbers("BM", "BN", "BK")
    threads, chunks = threads_of(tile), bk // CHUNK
    if bm % (threads // 8 * chunks) or threads % (bn // 4) or bk % (threads * 4 // bn * chunks):
        return f"{tile}: {threads} threads do not share its copies equally"
    return None


def launch(tile: Config, problem: Problem) -> Launch:
    """Return the launch of a cluster of SPLITS blocks for each tile of C."""
    splits = tile["splits"]
    return Launch(
        kernel=unaligned("splitk_cluster", tile, problem),
        grid=(splits * tiles_of_c(tile, problem),),
        block=(threads_of(tile),),
        shared_bytes=shared_bytes(tile),
        cluster=(splits, 1, 1),
        pdl=True,
    )


TILES = blocks(
    rows=(32, 48, 64, 96, 128),
    columns=(32, 64, 128),
    depths=(16, 32),
    threads=("4x4", "8x4", "4x8", "8x8", "12x8", "16x8"),
    stages=(2, 3, 4),
    splits=range(1, MAX_LARGE_CLUSTER + 1),
    default=(
        "32x64x16/8x4/s4/k4",
        "64x128x16/8x8/s4/k4",
        "96x128x16/12x8/s4/k2",
        "128x64x32/8x8/s3/k1",
    ),
    together=why_not_together,
)


def resident_blocks(tile: Config) -> int:
    """Return the number of blocks that run on a multiprocessor at once.

    A thread has registers for its sums and for two sets of operands, and about 35 other registers,
    as counted in machine code.
    """
    tm, tn = tile.numbers("TM", "TN")
    registers = tm * tn + 2 * (tm + tn) + 35
    by_registers = REGISTERS // (registers * threads_of(tile))
    return int(min(by_registers, MAX_SHARED_BYTES // (shared_bytes(tile) + RESERVED_BYTES)))


COMPARED_TILES = (
    "32x64x16/8x4/s4", "32x128x16/8x4/s4", "64x64x16/8x8/s4", "64x64x32/8x4/s3",
    "64x128x16/8x8/s4", "64x128x32/8x8/s3", "128x64x16/8x8/s4", "128x64x32/8x8/s3",
    "96x128x16/12x8/s4", "128x128x16/8x8/s4", "128x128x32/16x8/s3",
)  # fmt: skip
"""Tiles that the model compares. Each was among the three fastest, or nearly, at two of 30 random
shapes (seed 11 of `research/shapes.py`). The model divides K into up to eight parts, and into 12
and 16 parts if M is at most `FEW_ROWS`."""

FEW_ROWS = 64
"""Largest M for which twice as many configurations are picked. At 31 such products on an H200, the
better of two picks of different sizes takes 8 % longer than the fastest of 25 to 40 configurations,
and the best of four picks takes 4 % longer."""

SMALL_TILE = "32x32x16/4x4/s4"
"""Tile for small products, whose time is that of a few steps, one after the other. A part of K may
be a single step."""

MAX_SMALL_EXTENT = 384
"""Maximum M, N and K of a small product."""


@cache
def configurations(*, aligned: bool) -> tuple[SmallTile, ...]:
    """Return the configurations that the model compares.

    A copy takes four elements of B if its rows are `aligned`, and one element otherwise.
    """
    compared = []
    for text, splits in product(
        (*COMPARED_TILES, SMALL_TILE), (*range(1, MAX_CLUSTER + 1), 12, MAX_LARGE_CLUSTER)
    ):
        tile = TILES.read(f"{text}/k{splits}")
        bm, bn, bk, tm, tn = tile.numbers("BM", "BN", "BK", "TM", "TN")
        # For each k, a thread has loads of 16 bytes, copies with their addresses, and the loop.
        loads = (tm + tn) / 4
        other_instructions = loads + 2 * (bm + bn / (4 if aligned else 1)) / threads_of(tile) + 1
        copy_clocks = 0 if aligned else bn * COPY_CLOCKS
        compared.append(
            SmallTile.of(
                tile,
                warps=threads_of(tile) // 32,
                resident=resident_blocks(tile),
                issued=1 + other_instructions / (tm * tn),
                shared_clocks=bk * (threads_of(tile) * loads * LOAD_CLOCKS + copy_clocks) / 32,
            )
        )
    return tuple(compared)


def choices(problem: Problem) -> Iterator[SmallTile]:
    """Yield configurations whose parts of K have at least two steps (`SMALL_TILE`: one step)."""
    is_small = max(problem.m, problem.n, problem.k) <= MAX_SMALL_EXTENT
    for choice in configurations(aligned=problem.n % 4 == 0):
        depth, splits = choice.tile.numbers("BK", "splits")
        max_splits = max(problem.k // (2 * depth), 1)
        if str(choice).startswith(SMALL_TILE):
            small_splits = -(-problem.k // depth) if problem.k > 2 * depth else 1
            max_splits = small_splits if is_small else 0
        if splits <= max_splits and (splits <= MAX_CLUSTER or problem.m <= FEW_ROWS):
            yield choice


VARIANT = variant(
    idea="small tiles in one launch, and K in parts by the blocks of a cluster",
    after="splitk",
    dtypes=("float32", "int32"),
    capability=(9, 0),
    tiles=TILES,
    launch=launch,
    auto_tiles=DifferentPicks(choices, FEW_ROWS),
)
