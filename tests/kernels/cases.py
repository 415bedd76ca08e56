"""Which tiles, sizes and dtypes of a variant are run on the CPU, and what must come out."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator, Sequence
from itertools import count

import numpy as np
from on_cpu import Case, operands

from gpubench.model import CudaVariant, Problem, Tile

MOST_TILES = 40
"""Of a larger space the defaults are run, and of the rest every so many-th."""

OTHER_DTYPES_TILES = 8
"""In dtypes but the first: the source is the same, and what depends on a dtype (vector widths,
alignment) hardly depends on the tile."""

RACE_TILES = 5
RACE_THREADS = 256
"""ThreadSanitizer watches this many tiles, of at most so many threads a block: barriers and shared
arrays are used alike in all, and its cost grows with the square of a block's threads."""

MOST_PRODUCTS = 2**18
"""Multiply-adds of a case; K is cut to it."""

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
    """The result: whole numbers, and so exact in every dtype."""
    inputs = [one.astype(np.int64) for one in operands(problem)]
    result = EXPECTED[problem.op](*inputs)
    assert np.abs(result).max() < 2**24, "float32 would round"
    return result.astype(problem.dtype)


def tiles_to_run(variant: CudaVariant) -> tuple[Tile, ...]:
    """Every legal tile; of more than `MOST_TILES` the defaults, the ends, and evenly between."""
    assert variant.tiles
    legal = variant.tiles.legal
    if len(legal) <= MOST_TILES or all(len(tile.numbers) == 1 for tile in legal):
        return legal
    return tuple(dict.fromkeys((*variant.tiles.default, *evenly(legal, MOST_TILES))))


def tiles_to_race(variant: CudaVariant) -> tuple[Tile, ...]:
    """About five tiles with small blocks, from the smallest to the largest of them."""
    assert variant.tiles
    small = [tile for tile in variant.tiles.legal if threads(variant, tile) <= RACE_THREADS]
    return evenly(small or variant.tiles.legal[:1], RACE_TILES)


def evenly(tiles: Sequence[Tile], most: int) -> tuple[Tile, ...]:
    """At most so many of them, first and last among them."""
    if len(tiles) <= most:
        return tuple(tiles)
    return tuple(tiles[round(i * (len(tiles) - 1) / (most - 1))] for i in range(most))


def threads(variant: CudaVariant, tile: Tile) -> int:
    """Threads of the largest block that the variant launches at this tile."""
    problem = Problem(op=variant.op, m=WIDEST, n=WIDEST, k=WIDEST, dtype="float32")
    return max(one.threads_per_block for one in variant.launch(tile, problem).sequence)


def all_cases(variant: CudaVariant) -> list[Case]:
    """Every tile to run in the first dtype, and about eight of them in the others too."""
    first, *others = variant.dtypes
    tiles = tiles_to_run(variant)
    found = cases(variant, tiles, first)
    for dtype in others:
        found += cases(variant, evenly(tiles, OTHER_DTYPES_TILES), dtype)
    return found


def race_cases(variant: CudaVariant) -> list[Case]:
    """The tiles to race, in the first dtype."""
    return cases(variant, tiles_to_race(variant), variant.dtypes[0])


def cases(variant: CudaVariant, tiles: Sequence[Tile], dtype: str) -> list[Case]:
    """The tiles at the sizes where kernels go wrong."""
    found = []
    for tile in tiles:
        of_tile = [
            Case(variant=variant, tile=tile, problem=problem)
            for problem in problems(variant, tile, dtype)
        ]
        assert of_tile, f"{variant.name} {tile} takes none of the sizes"
        found += of_tile
    return found


def problems(variant: CudaVariant, tile: Tile, dtype: str) -> Iterator[Problem]:
    """One element; one more than a block covers; less, and prime; a tall and a wide one.

    Where the variant refuses a size, its extents are rounded up to what it takes.
    """

    def problem(m: int, n: int, k: int) -> Problem:
        return Problem(op=variant.op, m=m, n=n, k=k, dtype=dtype)

    m_tile = covered(lambda m: variant.launch(tile, problem(m, 1, 1)).blocks)
    n_tile = covered(lambda n: variant.launch(tile, problem(1, n, 1)).blocks)
    k_tile = tile.block[2] if len(tile.block) == 3 else min(tile.block[0], 32)
    sizes = (
        (1, 1, 1),
        (m_tile + 1, n_tile + 1, k_tile + 1),
        (prime(m_tile), prime(n_tile), prime(k_tile)),
        (m_tile + 1, 1, 2 * k_tile + 3),
        (1, n_tile + 1, 3 * k_tile - 1),
    )
    seen = set()
    for m, n, k in sizes:
        least = max(2, MOST_PRODUCTS // (m * n))
        k_here = min(k, least) if variant_has_k(variant) else 1
        for step in (1, 2, 4, 8, 16, 32):
            rounded = problem(*(-(-extent // step) * step for extent in (m, n, k_here)))
            if variant.refuse(tile, rounded) is None:
                if rounded.size not in seen:
                    seen.add(rounded.size)
                    yield rounded
                break


def variant_has_k(variant: CudaVariant) -> bool:
    """Whether its operation has a third extent."""
    return Problem(op=variant.op, m=1, n=1, k=1, dtype="float32").operation.extents == 3


def covered(blocks: Callable[[int], int]) -> int:
    """The largest extent, up to `WIDEST`, for which there is no second block."""
    alone = blocks(1)
    more = bisect.bisect_right(range(1, WIDEST + 1), 0, key=lambda extent: blocks(extent) > alone)
    return max(more, 1)


def prime(limit: int) -> int:
    """The largest prime below the limit, or 2; 1 where there is none."""
    below = (n for n in count(limit - 1, -1) if n < 3 or all(n % d for d in range(2, n)))
    return max(1, next(below))
