from gpubench.kernels.block_tiles import (
    MAX_SHARED_BYTES,
    blocks,
    threads_of,
    tiles_of_c,
    variant,
    warps_that_fit,
)
from gpubench.kernels.gemm.bulk_copies import BYTES, STATIC, pack_and_multiply
from gpubench.model import Config, Gpu, Launch, Problem

FLAGS = 1024
"""Elements of the workspace before the panels, as in the source: a flag per block."""

SHAPES = {(128, 256, 16, 8), (128, 128, 8, 8), (64, 64, 8, 8)}
"""Legal rows and columns of a block, and of a thread. Other shapes are slower."""

MAX_MULTIPROCESSORS = 256
"""At least the number of multiprocessors of any GPU."""


def shared_bytes(tile: Config) -> int:
    """Return the dynamic shared memory: the stages, and the scratch for storing results.

    Small tiles request more than they need, so that each multiprocessor holds two blocks. If some
    held three, the others would wait for them.
    """
    bm, bn, bk, tn, stages = tile.numbers("BM", "BN", "BK", "TN", "stages")
    scratch = threads_of(tile) // 32 * (16 * 8 * tn + 4)
    needed = BYTES * (stages * bk * (bm + bn) + scratch)
    return max(needed, MAX_SHARED_BYTES // 3) if resident(tile) > 1 else needed


def resident(tile: Config) -> int:
    """Return the number of blocks per multiprocessor."""
    return 2 if tile.numbers("BM", "BN") == (64, 64) else 1


def refuse(tile: Config, problem: Problem) -> str | None:
    """Refuse splits if C has more tiles than the GPU holds blocks: they would change nothing."""
    tiles = tiles_of_c(tile, problem)
    at_most = resident(tile) * MAX_MULTIPROCESSORS
    if tile["splits"] > 1 and tiles > at_most:
        return f"splits are for up to {at_most} tiles of C, and {problem.size} has {tiles}"
    return None


def launch(tile: Config, problem: Problem) -> Launch:
    """Launch the packing, then the product with a block per tile of C, or several with splits."""
    return launches(tile, problem, resident_blocks=FLAGS)


def specialize(_: Launch, tile: Config, problem: Problem, gpu: Gpu) -> Launch:
    """Launch at most the number of blocks that the GPU holds at once."""
    return launches(tile, problem, resident_blocks=resident(tile) * gpu.multiprocessors)


def launches(tile: Config, problem: Problem, resident_blocks: int) -> Launch:
    """Launch the packing, then the product with at most `resident_blocks` blocks, started early."""
    bm, bn, bk = tile.numbers("BM", "BN", "BK")
    blocks, streamed = stream_k(
        tiles=tiles_of_c(tile, problem),
        steps=-(-problem.k // bk),
        splits=tile["splits"],
        resident_blocks=min(resident_blocks, FLAGS),
    )
    product = Launch(
        grid=(blocks,),
        block=(threads_of(tile),),
        shared_bytes=shared_bytes(tile),
        int_arguments=(streamed,),
        pdl=True,
    )
    return pack_and_multiply(
        tile,
        problem,
        product,
        elements_before=FLAGS,
        elements_after=blocks * bm * bn if streamed else 0,
    )


def stream_k(*, tiles: int, steps: int, splits: int, resident_blocks: int) -> tuple[int, int]:
    """Return the number of blocks, and of tiles whose steps are cut into ranges (`stream_k.cuh`).

    These tiles are one per block, and the remainder after every block takes whole tiles. So a range
    is longer than a tile, and at most two blocks share a tile. If there are fewer tiles than the
    GPU holds blocks, tiles are taken whole, or shared by `splits` blocks each.
    """
    if tiles <= resident_blocks:
        blocks = min(resident_blocks, tiles * min(splits, steps))
        return blocks, tiles if blocks > tiles else 0
    left_over = tiles % resident_blocks
    return resident_blocks, resident_blocks + left_over if left_over else 0


def together(tile: Config) -> str | None:
    """Require one of the shapes, whole warps, and room for the stages."""
    if tile.numbers("BM", "BN", "TM", "TN") not in SHAPES:
        return f"{tile}: takes 128x256 with 16x8 a thread, 128x128 or 64x64 with 8x8"
    return warps_that_fit(lambda tile: shared_bytes(tile) + STATIC)(tile)


VARIANT = variant(
    idea="persistent blocks: the next tile is fetched early, and all end together (stream-K)",
    after="bulk_copies",
    dtypes=("float32", "int32"),
    capability=(9, 0),
    tiles=blocks(
        rows=(64, 128),
        columns=(64, 128, 256),
        depths=(64,),
        threads=("8x8", "16x8"),
        stages=(2,),
        splits=(1, 2, 4, 16),
        default=(
            "128x256x64/16x8/s2",
            "128x256x64/16x8/s2/k4",
            "128x128x64/8x8/s2/k16",
            "64x64x64/8x8/s2",
            "64x64x64/8x8/s2/k16",
        ),
        together=together,
    ),
    launch=launch,
    specialize=specialize,
    refuse=refuse,
)
