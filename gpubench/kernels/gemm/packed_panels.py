"""A packed into panels by a first launch; tiles come by bulk copies to blocks that stay."""

from gpubench.kernels.block_tiles import (
    MAX_SHARED_BYTES,
    blocks,
    rows_and_columns,
    threads_of,
    whole_warps,
)
from gpubench.model import CudaVariant, Gpu, Launch, Problem, TensorMap, Tile

BYTES = 4
"""An element's: float32 and int32."""

FLAGS = 1024
"""Elements of the workspace before the panels, as in the source: a flag for each block."""

STATIC = 256
"""Bytes of shared memory with a fixed size, at the most: the stages' barriers."""

SHAPES = {(128, 256, 16, 8), (128, 128, 8, 8), (64, 64, 8, 8)}
"""A block's rows and columns, and a thread's, that were worth it."""

MAX_MULTIPROCESSORS = 256
"""More than any GPU has."""

B, WORKSPACE = 1, 3
"""Places among the kernel's arrays."""


def shared_bytes(tile: Tile) -> int:
    """Dynamic shared memory: the stages, and the scratch through which results leave.

    Small tiles take more than they need, so that two blocks share a multiprocessor and not three:
    where some had three, all would wait for those.
    """
    bm, bn, bk = tile.block
    _, tn = tile.thread
    scratch = threads_of(tile) // 32 * (16 * 8 * tn + 4)
    needed = BYTES * (tile.stages * bk * (bm + bn) + scratch)
    return max(needed, MAX_SHARED_BYTES // 3) if resident(tile) > 1 else needed


def resident(tile: Tile) -> int:
    """Blocks a multiprocessor holds."""
    return 2 if tile.block[:2] == (64, 64) else 1


def tiles_of_c(tile: Tile, problem: Problem) -> int:
    """Whole and ragged ones."""
    bm, bn, _ = tile.block
    return -(-problem.m // bm) * -(-problem.n // bn)


def refuse(tile: Tile, problem: Problem) -> str | None:
    """Splits where there is nothing to split for: they would change nothing."""
    tiles = tiles_of_c(tile, problem)
    most = resident(tile) * MAX_MULTIPROCESSORS
    if tile.splits > 1 and tiles > most:
        return f"splits are for up to {most} tiles of C, and {problem.size} has {tiles}"
    return None


def launch(tile: Tile, problem: Problem) -> Launch:
    """Packing, then a product with a block for each tile of C, or several if splits are given."""
    return launches(tile, problem, resident_blocks=FLAGS)


def specialize(_: Launch, tile: Tile, problem: Problem, gpu: Gpu) -> Launch:
    """As many blocks as the GPU holds, where there are more tiles than that."""
    return launches(tile, problem, resident_blocks=resident(tile) * gpu.multiprocessors)


def launches(tile: Tile, problem: Problem, resident_blocks: int) -> Launch:
    """Packing, a block per tile of A and per unaligned row of B; then the product."""
    bm, bn, bk = tile.block
    m, n, k = problem.m, problem.n, problem.k
    tiles_of_a = -(-m // bm) * -(-k // bk)
    rows_of_b = k if n % 4 else 0
    row = -(-n // 4) * 4
    b_copy = FLAGS + tiles_of_a * bm * bk
    blocks, streamed = deal(
        tiles=tiles_of_c(tile, problem),
        steps=-(-k // bk),
        splits=tile.splits,
        resident_blocks=min(resident_blocks, FLAGS),
    )
    product = Launch(
        grid=(blocks,),
        block=(threads_of(tile),),
        shared_bytes=shared_bytes(tile),
        int_arguments=(streamed,),
        pdl=True,
        tensor_maps=(
            TensorMap(
                array=WORKSPACE if rows_of_b else B,
                offset_bytes=BYTES * b_copy if rows_of_b else 0,
                shape=(k, row),
                box=(bk, bn),
            ),
        ),
    )
    shared_tiles = blocks * bm * bn if streamed else 0
    return Launch(
        kernel="pack",
        grid=(tiles_of_a + rows_of_b,),
        block=(256,),
        workspace_bytes=BYTES * (b_copy + rows_of_b * row + shared_tiles),
        next_launches=(product,),
    )


def deal(*, tiles: int, steps: int, splits: int, resident_blocks: int) -> tuple[int, int]:
    """Blocks, and how many tiles' steps are dealt to them evenly; they take the others whole.

    What does not come out even is dealt together with one round of whole tiles, so that a share is
    more than a tile, and no tile is shared by more than two. Fewer tiles than the GPU holds blocks
    are whole; with splits, so many blocks share each.
    """
    if tiles <= resident_blocks:
        blocks = min(resident_blocks, tiles * min(splits, steps))
        return blocks, tiles if blocks > tiles else 0
    left_over = tiles % resident_blocks
    return resident_blocks, resident_blocks + left_over if left_over else 0


def together(tile: Tile) -> str | None:
    """One of the shapes, of whole warps, and with room for its stages."""
    if tile.block[:2] + tile.thread not in SHAPES:
        return f"{tile}: takes 128x256 with 16x8 a thread, 128x128 or 64x64 with 8x8"
    if shared_bytes(tile) > MAX_SHARED_BYTES - STATIC:
        return f"{tile}: {shared_bytes(tile)} bytes of shared memory, over {MAX_SHARED_BYTES}"
    return whole_warps(tile)


VARIANT = CudaVariant(
    idea="A packed into panels first, tiles by TMA, blocks that stay and end together (stream-K)",
    after="register_banks",
    dtypes=("float32", "int32"),
    capability=(9, 0),
    tiles=blocks(
        rows=(64, 128),
        columns=(64, 128, 256),
        depths=(64,),
        threads=("8x8", "16x8"),
        stages=(2,),
        splits=(1, 2, 4),
        default=(
            "128x256x64/16x8/s2",
            "128x256x64/16x8/s2/k4",
            "128x128x64/8x8/s2/k2",
            "64x64x64/8x8/s2",
        ),
        together=together,
    ),
    launch=launch,
    specialize=specialize,
    refuse=refuse,
    reuse=rows_and_columns,
)
