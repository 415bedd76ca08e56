"""Defines spaces of block tiles, refuses illegal tiles, and returns launches for tiles."""

from collections.abc import Callable, Sequence
from functools import partial

from gpubench.model import Config, CudaVariant, Launch, Problem, Space

MAX_SHARED_BYTES = 227 * 1024
"""Maximum shared memory of a block, requested at launch, on compute capability 9.0."""


def blocks(
    *,
    rows: Sequence[int],
    columns: Sequence[int],
    depths: Sequence[int],
    threads: Sequence[str],
    default: tuple[str, ...],
    together: Callable[[Config], str | None] = lambda _tile: None,
    **further: Sequence[int | str],
) -> Space:
    """Return the space of block tiles BM×BN×BK with a tile TM×TN per thread.

    An example of a tile is `128x128x8/8x8`.

    `further` has more axes, such as `stages`, in the order of the template's arguments. `together`
    returns why a combination of values is illegal, or None.
    """
    thread_tiles = [tuple(map(int, thread.split("x"))) for thread in threads]

    def constraint(tile: Config) -> str | None:
        if (tile["TM"], tile["TN"]) not in thread_tiles:
            return f"takes a thread tile {' or '.join(threads)}, not {tile['TM']}x{tile['TN']}"
        return together(tile)

    tm, tn = (tuple(dict.fromkeys(numbers)) for numbers in zip(*thread_tiles, strict=True))
    return Space(
        axes={"BM": rows, "BN": columns, "BK": depths, "TM": tm, "TN": tn, **further},
        block=("BM", "BN", "BK"),
        thread=("TM", "TN"),
        default=default,
        constraint=constraint,
    )


def threads_of(tile: Config) -> int:
    """Return the number of threads in a block, which has one thread for each thread tile."""
    bm, bn, tm, tn = tile.numbers("BM", "BN", "TM", "TN")
    return bm * bn // (tm * tn)


def rows_and_columns(tile: Config) -> tuple[int, int]:
    """Return how many rows and columns of C a block computes. These share loads of A and B."""
    rows, columns = tile.numbers("BM", "BN")
    return rows, columns


def tiles_of_c(tile: Config, problem: Problem) -> int:
    """Return the number of block tiles that cover C."""
    bm, bn = tile.numbers("BM", "BN")
    return -(-problem.m // bm) * -(-problem.n // bn)


def block_per_tile(tile: Config, problem: Problem) -> Launch:
    """Return a launch that has one block for each tile of C.

    The x dimension of the grid runs along the columns of C, and the y dimension along the rows.
    """
    bm, bn = tile.numbers("BM", "BN")
    return Launch(grid=(-(-problem.n // bn), -(-problem.m // bm)), block=(threads_of(tile),))


variant = partial(CudaVariant, launch=block_per_tile, reuse=rows_and_columns)
"""Returns the variant of a kernel whose blocks compute tiles of C. By default, a launch has one
block for each tile."""


def rasterized(tile: Config, problem: Problem) -> Launch:
    """Return a launch that has one block for each tile of C. The kernel itself orders the tiles.

    The grid has one dimension, and a block has `padded_stages_bytes` of shared memory.
    """
    return Launch(
        grid=(tiles_of_c(tile, problem),),
        block=(threads_of(tile),),
        shared_bytes=padded_stages_bytes(tile),
    )


def at_most_1024_threads(tile: Config) -> str | None:
    """Return why a block cannot have the number of threads that a tile needs, or None."""
    bm, bn, tm, tn = tile.numbers("BM", "BN", "TM", "TN")
    if bm % tm or bn % tn:
        return f"{tile}: {tm}x{tn} per thread does not divide {bm}x{bn}"
    if threads_of(tile) > 1024:  # noqa: PLR2004 # CUDA's limit, named in the message
        return f"{tile}: {threads_of(tile)} threads, but a block holds at most 1024"
    return None


def whole_warps(tile: Config) -> str | None:
    """Return why a tile does not consist of warps of 4×8 threads, or None."""
    if reason := at_most_1024_threads(tile):
        return reason
    bm, bn, tm, tn = tile.numbers("BM", "BN", "TM", "TN")
    if bm % (4 * tm) or bn % (8 * tn):
        return f"{tile}: a warp of 4x8 threads covers {4 * tm}x{8 * tn}, and must divide the tile"
    return None


def warps_that_fit(shared_bytes: Callable[[Config], int]) -> Callable[[Config], str | None]:
    """Return a constraint that requires whole warps of 4×8 threads and enough shared memory."""

    def together(tile: Config) -> str | None:
        if shared_bytes(tile) > MAX_SHARED_BYTES:
            return (
                f"{tile}: {shared_bytes(tile)} bytes of shared memory, more than {MAX_SHARED_BYTES}"
            )
        return whole_warps(tile)

    return together


def padded_stages_bytes(tile: Config) -> int:
    """Return the bytes of shared memory that all stages take.

    An element has 4 bytes, and rows of A are padded by 16 bytes.
    """
    bm, bn, bk, stages = tile.numbers("BM", "BN", "BK", "stages")
    return 4 * stages * bk * (bm + 4 + bn)
