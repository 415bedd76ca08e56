"""Block tiles: their spaces, the reasons why a tile is illegal, and the launch kernels share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

from gpubench.model import Launch, Problem, Tile, TileSpace

STATIC_SHARED_BYTES = 48 * 1024
"""Shared memory that a kernel may declare with a fixed size (CUDA C++ Programming Guide)."""

MAX_SHARED_BYTES = 227 * 1024
"""Shared memory a block may have, asked for at launch, on compute capability 9.0."""


def blocks(
    *,
    rows: Sequence[int],
    columns: Sequence[int],
    depths: Sequence[int],
    threads: Sequence[str],
    stages: Sequence[int] = (1,),
    splits: Sequence[int] = (1,),
    default: Sequence[str],
    together: Callable[[Tile], str | None] = lambda _tile: None,
) -> TileSpace:
    """The space of block tiles BM×BN×BK with a tile per thread, such as `128x128x8/8x8`.

    Each number must be one of those given for it; `together` gives the reason why a combination
    is illegal, or None. A block tile without a thread tile means the first default with that block,
    or else the first legal tile.
    """
    axes = (
        ("BM", rows, lambda tile: tile.block[0]),
        ("BN", columns, lambda tile: tile.block[1]),
        ("BK", depths, lambda tile: tile.block[2]),
        ("a thread tile", threads, lambda tile: "x".join(map(str, tile.thread))),
        ("stages", stages, lambda tile: tile.stages),
        ("splits of K", splits, lambda tile: tile.splits),
    )

    def refuse(tile: Tile) -> str | None:
        if len(tile.block) != len(("BM", "BN", "BK")):
            return f"takes a block tile such as {default[0]}, not {tile}"
        for name, values, number in axes:
            if number(tile) not in values:
                legal_values = " or ".join(map(str, values))
                return f"takes {name} {legal_values}, not {number(tile) or 'none'}"
        return together(tile)

    candidates = (
        Tile(block=(m, n, k), thread=_pair(thread), stages=stage, splits=split)
        for m, n, k, thread, stage, split in product(rows, columns, depths, threads, stages, splits)
    )
    legal = tuple(tile for tile in candidates if refuse(tile) is None)
    defaults = tuple(map(Tile.parse, default))

    def complete(tile: Tile) -> Tile:
        if tile.thread or len(tile.block) != len(("BM", "BN", "BK")):
            return tile
        completions = (
            whole
            for whole in (*defaults, *legal)
            if whole.block == tile.block
            and tile.stages in {1, whole.stages}
            and tile.splits in {1, whole.splits}
        )
        return next(completions, tile)

    summary = "; ".join(
        f"{name.removeprefix('a ')} {', '.join(map(str, values))}"
        for name, values, _ in axes
        if values != (1,)
    )
    return TileSpace(
        refuse=refuse, default=defaults, legal=legal, complete=complete, summary=summary
    )


def _pair(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split("x")))


def threads_of(tile: Tile) -> int:
    """Threads a block of BM×BN has when each computes its thread tile."""
    (bm, bn, _), (tm, tn) = tile.block, tile.thread
    return bm * bn // (tm * tn)


def rows_and_columns(tile: Tile) -> tuple[int, int]:
    """A block's tile of C, whose rows and columns share each load from global memory."""
    rows, columns, _ = tile.block
    return rows, columns


def tiles_of_c(tile: Tile, problem: Problem) -> int:
    """Block tiles that cover C."""
    bm, bn, _ = tile.block
    return -(-problem.m // bm) * -(-problem.n // bn)


def block_per_tile(tile: Tile, problem: Problem) -> Launch:
    """Launch one block per tile of C, the grid's x over columns and its y over rows."""
    bm, bn, _ = tile.block
    return Launch(grid=(-(-problem.n // bn), -(-problem.m // bm)), block=(threads_of(tile),))


def rasterized(tile: Tile, problem: Problem) -> Launch:
    """Launch one block per tile of C in one dimension, for a kernel that orders them itself.

    With shared memory for `padded_stages_bytes`.
    """
    return Launch(
        grid=(tiles_of_c(tile, problem),),
        block=(threads_of(tile),),
        shared_bytes=padded_stages_bytes(tile),
    )


def at_most_1024_threads(tile: Tile) -> str | None:
    """Why a block cannot have the threads that a tile asks for, or None."""
    (bm, bn, _), (tm, tn) = tile.block, tile.thread
    if bm % tm or bn % tn:
        return f"{tile}: {tm}x{tn} a thread does not divide {bm}x{bn}"
    if threads_of(tile) > 1024:  # noqa: PLR2004 # CUDA's limit, named in the message
        return f"{tile}: {threads_of(tile)} threads, and a block holds at most 1024"
    return None


def whole_warps(tile: Tile) -> str | None:
    """Why a tile is not made of warps of 4×8 threads, or None."""
    if reason := at_most_1024_threads(tile):
        return reason
    (bm, bn, _), (tm, tn) = tile.block, tile.thread
    if bm % (4 * tm) or bn % (8 * tn):
        return f"{tile}: a warp of 4x8 threads covers {4 * tm}x{8 * tn}, which does not divide it"
    return None


def warps_that_fit(shared_bytes: Callable[[Tile], int]) -> Callable[[Tile], str | None]:
    """Require whole warps of 4×8 threads, and dynamic shared memory that a block may have."""

    def together(tile: Tile) -> str | None:
        if shared_bytes(tile) > MAX_SHARED_BYTES:
            return f"{tile}: {shared_bytes(tile)} bytes of shared memory, over {MAX_SHARED_BYTES}"
        return whole_warps(tile)

    return together


def padded_stages_bytes(tile: Tile) -> int:
    """Bytes of STAGES tiles of A and B of 4-byte elements, each row of A's padded by 16 bytes."""
    bm, bn, bk = tile.block
    return 4 * tile.stages * bk * (bm + 4 + bn)
