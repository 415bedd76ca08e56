"""Which tiles, sizes and dtypes of a variant are run on the CPU, and what must come out."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count

import numpy as np

from gpubench.commands.check.on_cpu import Case, operands
from gpubench.errors import UsageError
from gpubench.model import Config, CudaVariant, Problem

MAX_TILES = 3
"""Of a larger space of tiles: its defaults, and so many evenly from it all."""

EDGES = (1, 3, 13, 32)
"""Of tiles that are one number: one, odd, prime, and a power of two."""

RACE_TILES = 2
RACE_THREADS = 128
"""ThreadSanitizer watches this many tiles, of at most so many threads a block: barriers and shared
arrays are used alike in all, and its cost grows with the square of a block's threads."""

FEWEST_SIZES = 3
"""A tile is run at this many sizes at the least, however much its variant refuses."""

MAX_PRODUCTS = 2**18
"""Multiply-adds of a case: K is cut to it, or N where there is no K."""

MAX_THREADS = 2**16
"""CUDA threads of a case without K, where one may stand for a row: N is cut to it too."""

SHORT = 32
"""N is cut no further."""

ROUND = 16
"""Elements of which round extents are multiples."""

WIDEST = 1024
"""No block covers more of an extent than this, or it covers any."""

EXPECTED: dict[str, Callable[..., np.ndarray]] = {
    "gemm": lambda a, b: a @ b,
    "gemv": lambda a, x: a @ x,
    "gemv_t": lambda a, x: a.T @ x,
    "atax": lambda a, x: a.T @ (a @ x),
}
"""The operations, written once more and independently of gpubench's own references."""


def expected(problem: Problem) -> np.ndarray:
    """The result: small whole numbers, and so exact in every dtype."""
    inputs = [one.astype(np.int64) for one in operands(problem)]
    result = EXPECTED[problem.op](*inputs)
    return result.astype(problem.dtype)


def tiles_to_run(variant: CudaVariant) -> tuple[Config, ...]:
    """The defaults, the first and the last, and some between."""
    legal = tuple(variant.tiles)
    wanted = {*variant.tiles.defaults, *evenly(legal, MAX_TILES)}
    edges = EDGES if len(variant.tiles.axes) == 1 else ()
    return tuple(tile for tile in legal if tile in wanted or next(iter(tile.values())) in edges)


def tiles_to_race(variant: CudaVariant) -> tuple[Config, ...]:
    """A few tiles with small blocks, from the smallest to the largest of them."""
    by_threads = sorted(variant.tiles, key=lambda tile: threads(variant, tile))
    small = [tile for tile in by_threads if threads(variant, tile) <= RACE_THREADS]
    return evenly(small or by_threads[:1], RACE_TILES)


def evenly(tiles: Sequence[Config], most: int) -> tuple[Config, ...]:
    """At most so many of them, two or more, first and last among them."""
    if len(tiles) <= most:
        return tuple(tiles)
    return tuple(tiles[round(i * (len(tiles) - 1) / (most - 1))] for i in range(most))


def threads(variant: CudaVariant, tile: Config) -> int:
    """Threads of a block at this tile."""
    problem = Problem(op=variant.op, m=1, n=1, k=1, dtype=variant.dtypes[0])
    return variant.launch(tile, problem).threads_per_block


def all_cases(variant: CudaVariant, tiles: Sequence[Config] = ()) -> list[Case]:
    """Every tile given, or to run, in the first dtype, and the middle one in the others too.

    The source is the same, and what depends on a dtype (vector widths, alignment) hardly depends on
    the tile.
    """
    first, *others = variant.dtypes
    tiles = tiles or tiles_to_run(variant)
    found = cases(variant, tiles, first)
    for dtype in others:
        found += cases(variant, [tiles[len(tiles) // 2]], dtype)
    return found


def race_cases(variant: CudaVariant, tiles: Sequence[Config] = ()) -> list[Case]:
    """Every tile given, or to race, in the first dtype."""
    return cases(variant, tiles or tiles_to_race(variant), variant.dtypes[0])


def cases(variant: CudaVariant, tiles: Sequence[Config], dtype: str) -> list[Case]:
    """The tiles at the sizes where kernels go wrong."""
    found = []
    for tile in tiles:
        of_tile = problems(variant, tile, dtype)
        if len(of_tile) < FEWEST_SIZES:
            raise UsageError(f"{variant.name} {tile} refuses nearly all sizes")
        found += [Case(variant=variant, tile=tile, problem=problem) for problem in of_tile]
    return found


def problems(variant: CudaVariant, tile: Config, dtype: str) -> list[Problem]:
    """One element; more than a block covers, odd and round; less, and prime; tall; wide.

    Where the variant refuses a size, its extents are changed to the nearest that it takes.
    """

    def problem(m: int, n: int, k: int) -> Problem:
        return Problem(op=variant.op, m=m, n=n, k=k, dtype=dtype)

    has_k = problem(1, 1, 1).operation.has_k
    m_tile = covered(variant, tile, lambda m: problem(m, 1, 1))
    n_tile = covered(variant, tile, lambda n: problem(1, n, 1))
    k_tile = tile["BK"] if "BK" in tile else min(next(iter(tile.values()), 32), 32)
    sizes = [
        (1, 1, 1),
        (m_tile + 1, n_tile + 1, k_tile + 1),
        tuple(rounded_up(extent + 1, ROUND) for extent in (m_tile, n_tile, k_tile)),
        (prime(m_tile), prime(n_tile), prime(k_tile)),
        (m_tile + 1, 1, 2 * k_tile + 3),
        (1, n_tile + 1, 3 * k_tile - 1),
    ]
    if not has_k:  # loops over M and N that no tile's number shows
        sizes += [(131, 37, 1), (37, 131, 1)]
    taken = {}
    for m, n, k in sizes:
        wanted = problem(m, n, min(k, max(2, MAX_PRODUCTS // (m * n))) if has_k else 1)
        if near := nearest(variant, tile, affordable(variant, tile, wanted)):
            taken[near.size] = near
    return list(taken.values())


def affordable(variant: CudaVariant, tile: Config, problem: Problem) -> Problem:
    """The problem, where there is no K with N halved, odd or round as it was, while it is long."""

    def too_much() -> bool:
        launched = variant.launch(tile, problem).sequence
        all_threads = sum(one.blocks * one.threads_per_block for one in launched)
        return problem.m * problem.n > MAX_PRODUCTS or all_threads > MAX_THREADS

    while not problem.operation.has_k and problem.n > SHORT and too_much():
        half = problem.n // 2
        n = rounded_down(half, ROUND) if problem.n % ROUND == 0 else half | 1
        problem = replace(problem, n=n)
    return problem


def nearest(variant: CudaVariant, tile: Config, wanted: Problem) -> Problem | None:
    """The problem, or where the variant refuses it one with all extents rounded, up or down."""
    for by in (rounded_up, rounded_down):
        for step in (1, 2, 4, 8, 16, 32, 64, 128):
            k = by(wanted.k, step) if wanted.operation.has_k else 1
            near = replace(wanted, m=by(wanted.m, step), n=by(wanted.n, step), k=k)
            if variant.refuse(tile, near) is None:
                return near
    return None


def rounded_up(extent: int, step: int) -> int:
    """To a multiple of the step."""
    return -(-extent // step) * step


def rounded_down(extent: int, step: int) -> int:
    """To a multiple of the step, or to 1."""
    return max(1, extent // step * step)


def covered(variant: CudaVariant, tile: Config, problem: Callable[[int], Problem]) -> int:
    """The largest extent, up to `WIDEST`, for which there is no second block."""

    def more_blocks(extent: int) -> bool:
        return variant.launch(tile, problem(extent)).main.blocks > one_block

    one_block = variant.launch(tile, problem(1)).main.blocks
    return max(1, bisect.bisect_left(range(1, WIDEST + 1), x=True, key=more_blocks))


def prime(limit: int) -> int:
    """The largest prime below the limit, or 2; 1 where there is none."""
    below = (n for n in count(limit - 1, -1) if all(n % d for d in range(2, n)))
    return max(1, next(below))
