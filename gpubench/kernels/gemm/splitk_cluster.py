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

BYTES = 4
"""Bytes of an element: float32 and int32."""

REGISTERS = 65_536
"""Registers of a multiprocessor."""

RESERVED_BYTES = 1024
"""Shared memory that each block takes besides its own (CUDA C++ Programming Guide)."""

LOAD_CLOCKS = 2
"""Clocks of a warp's load of 16 bytes a thread, of which 4 or 8 are different: an assumption."""

COPY_CLOCKS = 2
"""Clocks that a warp's copy of single elements of B adds. At 18 odd shapes on an H200, the better
of two picks takes 4 % longer than the fastest configuration with this term, and 5 % without it."""

CHUNK = 8
"""Values of k between two requests for copies, as in `interleaved_product.cuh`."""


def shared_bytes(tile: Config) -> int:
    """Return the shared memory of the stages, and later of sums, or of scratch for results."""
    bm, bn, tn = tile.numbers("BM", "BN", "TN")
    scratch = threads_of(tile) // 32 * (16 * 8 * tn + 4)
    after = bm * bn if tile["splits"] > 1 else scratch
    return max(padded_stages_bytes(tile), BYTES * after)


def together(tile: Config) -> str | None:
    """Require whole warps, room for the stages, and the same copies for each thread and chunk."""
    if reason := warps_that_fit(shared_bytes)(tile):
        return reason
    bm, bn, bk = tile.numbers("BM", "BN", "BK")
    threads, chunks = threads_of(tile), bk // CHUNK
    if bm % (threads // 8 * chunks) or threads % (bn // 4) or bk % (threads * 4 // bn * chunks):
        return f"{tile}: {threads} threads do not share its copies equally"
    return None


def launch(tile: Config, problem: Problem) -> Launch:
    """Launch SPLITS blocks per tile of C, a cluster of them."""
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
    together=together,
)


def resident(tile: Config) -> int:
    """Return the number of blocks of a multiprocessor, with registers as counted in machine code.

    A thread has its sums, two sets of operands, and about 35 other registers.
    """
    tm, tn = tile.numbers("TM", "TN")
    registers = tm * tn + 2 * (tm + tn) + 35
    by_registers = REGISTERS // (registers * threads_of(tile))
    return int(min(by_registers, MAX_SHARED_BYTES // (shared_bytes(tile) + RESERVED_BYTES)))


COMPARED = (
    *("32x64x16/8x4/s4", "32x128x16/8x4/s4", "64x64x16/8x8/s4", "64x64x32/8x4/s3"),
    *("64x128x16/8x8/s4", "64x128x32/8x8/s3", "128x64x16/8x8/s4", "128x64x32/8x8/s3"),
    *("96x128x16/12x8/s4", "128x128x16/8x8/s4", "128x128x32/16x8/s3"),
)
"""Tiles that the model compares: each was among the three fastest at two of 30 random shapes, or
nearly (seed 11 of `benchmarks/shapes.py`). Each is compared with up to eight parts of K, and for at
most `FEW_ROWS` with 12 and 16."""

FEW_ROWS = 64
"""Up to this M, twice as many configurations are picked: at 31 products on an H200, the better of
two takes 8 % longer than the fastest of 25 to 40 configurations, and the best of four 4 %."""

SMALL_TILE, SMALL = "32x32x16/4x4/s4", 384
"""Tile for extents of at most `SMALL`, where the time is that of few steps, one after the other. A
part of K may be one step."""


@cache
def configurations(*, aligned: bool) -> tuple[SmallTile, ...]:
    """Return the configurations that the model compares. A copy takes 4 elements of B, or 1."""
    every = []
    for text, splits in product(
        (*COMPARED, SMALL_TILE), (*range(1, MAX_CLUSTER + 1), 12, MAX_LARGE_CLUSTER)
    ):
        tile = TILES.read(f"{text}/k{splits}")
        bm, bn, bk, tm, tn = tile.numbers("BM", "BN", "BK", "TM", "TN")
        # Of a thread for each k: loads of 16 bytes, copies with their addresses, and the loop.
        loads = (tm + tn) / 4
        other = loads + 2 * (bm + bn / (4 if aligned else 1)) / threads_of(tile) + 1
        copied = 0 if aligned else bn * COPY_CLOCKS
        every.append(
            SmallTile.of(
                tile,
                warps=threads_of(tile) // 32,
                resident=resident(tile),
                issued=1 + other / (tm * tn),
                shared_clocks=bk * (threads_of(tile) * loads * LOAD_CLOCKS + copied) / 32,
            )
        )
    return tuple(every)


def choices(problem: Problem) -> Iterator[SmallTile]:
    """Yield configurations whose parts of K have two steps or more, or one in `SMALL_TILE`."""
    is_small = max(problem.m, problem.n, problem.k) <= SMALL
    for choice in configurations(aligned=problem.n % 4 == 0):
        depth, splits = choice.tile.numbers("BK", "splits")
        most = max(problem.k // (2 * depth), 1)
        if str(choice).startswith(SMALL_TILE):
            most = is_small and (-(-problem.k // depth) if problem.k > 2 * depth else 1)
        if splits <= most and (splits <= MAX_CLUSTER or problem.m <= FEW_ROWS):
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
