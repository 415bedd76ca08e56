"""Selects the tiles, sizes and dtypes at which a variant is run on the CPU."""

import bisect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import count

from gpubench.errors import UsageError
from gpubench.model import LAYOUTS, OPERATIONS, Config, CudaVariant, HostVariant, Problem
from gpubench.on_cpu.case import Case, titled

MAX_TILES = 3
"""Maximum number of evenly spaced tiles that are chosen from all tiles of a variant, in addition to
the default tiles."""

EDGES = (1, 3, 13, 32)
"""Tiles that are always chosen if a tile is a single number. These tiles are 1, two odd primes, and
a power of two."""

RACE_TILES = 2
"""Number of tiles that run under ThreadSanitizer. All tiles of a variant use barriers and shared
arrays in the same way."""

RACE_THREADS = 128
"""Maximum number of threads per block under ThreadSanitizer. If every tile has more threads, the
tile with the fewest threads is run. The time of a run grows with the square of the number of
threads."""

HOST_TILE = 32
"""Number of rows, and of columns, that a block of a host function's kernel is assumed to cover."""

ODD = (77, 13)  # values of M, N and K in the message on a kernel that refuses nearly all sizes

MIN_SIZES = 3
"""Minimum number of the selected sizes that a variant must accept for each tile."""

MAX_WORK = 2**22  # maximum number of operations of a case that is not a matrix product

MAX_PRODUCTS = 2**18
"""Maximum number of multiply-adds of a case. K, or N if there is no K, is reduced to keep this
limit."""

MAX_THREADS = 2**16
"""Maximum number of CUDA threads of a case without K. N is reduced to keep this limit."""

SMALL_K = 3
"""A value of K that is less than the other extents. A grid may take K for another extent."""

SHORT = 32
"""Extents up to this value are not reduced, even if a case is too large."""

ROUND = 16
"""Round extents are multiples of this number of elements."""

WIDEST = 1024
"""Largest extent that a block is assumed to cover, even if it covers more."""

WIDEST_SQUARE = 256
"""Largest extent that a block is assumed to cover, if the kernel takes only square matrices."""


Source = CudaVariant | HostVariant

Layout = tuple[str, ...] | None
"""Names of the column-major matrices. None stands for the variant's own layout."""


def tiles_to_run(variant: CudaVariant) -> tuple[Config, ...]:
    """Return the default tiles, the first tile, the last tile, and some tiles between these two."""
    legal = tuple(variant.tiles)
    chosen = {*variant.tiles.defaults, *evenly(legal, MAX_TILES)}
    edges = EDGES if len(variant.tiles.axes) == 1 else ()
    return tuple(tile for tile in legal if tile in chosen or next(iter(tile.values())) in edges)


def tiles_to_race(variant: CudaVariant) -> tuple[Config, ...]:
    """Return up to `RACE_TILES` tiles with small blocks, from the smallest to the largest."""
    by_threads = sorted(variant.tiles, key=lambda tile: threads(variant, tile))
    small = [tile for tile in by_threads if threads(variant, tile) <= RACE_THREADS]
    return evenly(small or by_threads[:1], RACE_TILES)


def evenly(tiles: Sequence[Config], limit: int) -> tuple[Config, ...]:
    """Return at most `limit` (2 or more) evenly spaced tiles, including the first and the last."""
    if len(tiles) <= limit:
        return tuple(tiles)
    return tuple(tiles[round(i * (len(tiles) - 1) / (limit - 1))] for i in range(limit))


def threads(variant: CudaVariant, tile: Config) -> int:
    """Return the number of threads that each block of the variant has with this tile."""
    problem = Problem(op=variant.op, m=1, n=1, k=1, dtype=variant.dtypes[0])
    return variant.launch(tile, problem).threads_per_block


class TooFewSizesError(UsageError):
    """A kernel refuses nearly all sizes at which kernels are checked."""


def all_cases(variant: Source, tiles: Sequence[Config | None] = ()) -> list[Case]:
    """Return cases of all tiles in the first dtype, and of one tile in other dtypes and layouts.

    Faults that depend on the dtype or the layout, such as wrong alignment, hardly depend on the
    tile. If `tiles` is empty, `tiles_to_run` selects the tiles.
    """
    first, *further_dtypes = variant.dtypes
    if not tiles and isinstance(variant, CudaVariant):
        tiles = tiles_to_run(variant)
    middle = [tiles[len(tiles) // 2]]
    selected = cases(variant, tiles, first)
    for dtype in further_dtypes:
        selected += cases(variant, middle, dtype)
    for name in variant.layouts:
        if LAYOUTS[name] != variant.own_layout(first):
            selected += cases(variant, middle, first, LAYOUTS[name])
    return selected


def race_cases(variant: Source, tiles: Sequence[Config | None] = ()) -> list[Case]:
    """Return cases of all tiles in the first dtype.

    If `tiles` is empty, `tiles_to_race` selects the tiles. Only two or three cases are returned if
    blocks have more than `RACE_THREADS` threads, or if the number of threads is unknown.
    """
    if not tiles and isinstance(variant, CudaVariant):
        tiles = tiles_to_race(variant)
    selected = cases(variant, tiles, variant.dtypes[0])
    if isinstance(variant, CudaVariant) and threads(variant, tiles[0] or Config()) <= RACE_THREADS:
        return selected
    first, second, *others = selected
    return [first, second, *others[-1:]] if not variant.only_extent else [first, second]


def cases(
    variant: Source, tiles: Sequence[Config | None], dtype: str, layout: Layout = None
) -> list[Case]:
    """Return cases of the tiles at the sizes where kernels tend to be wrong."""
    selected = []
    for tile in tiles:
        of_tile = problems(variant, tile, dtype, layout)
        if len(of_tile) < MIN_SIZES:
            odd = {n: Problem(op=variant.op, m=n, n=n, k=n, dtype=dtype) for n in ODD}
            refusals = ((n, variant.why_not(tile, problem)) for n, problem in odd.items())
            n, why = next(((n, why) for n, why in refusals if why), (0, ""))
            reason = f", such as {n}: {why}" if why else ""
            others = "" if n == max(ODD) else "; a sweep verifies other sizes"
            what = f"{titled(variant, tile)}, {dtype}, refuses nearly all sizes"
            raise TooFewSizesError(what + reason + others)
        selected += [Case(variant=variant, tile=tile, problem=problem) for problem in of_tile]
    return selected


def problems(
    variant: Source, tile: Config | None, dtype: str, layout: Layout = None
) -> list[Problem]:
    """Return problems whose sizes are near the edges of a tile.

    The problems have these results: a single element; more elements than a block covers, with odd
    and with round extents, and with a small K; fewer elements, with prime extents; a tall matrix;
    and a wide matrix. If the variant refuses a size, the nearest legal size is used.
    """
    column_major = variant.own_layout(dtype) if layout is None else layout
    if not OPERATIONS[variant.op].is_product:
        return stated_problems(variant, tile, dtype, column_major)

    def problem(m: int, n: int, k: int) -> Problem:
        return Problem(op=variant.op, m=m, n=n, k=k, dtype=dtype, column_major=column_major)

    has_k = problem(1, 1, 1).operation.has_k
    k_tile = 32
    if tile:
        k_tile = tile["BK"] if "BK" in tile else min(next(iter(tile.values()), 32), 32)
    if isinstance(variant, HostVariant) or tile is None:
        m_tile = n_tile = HOST_TILE
    elif variant.only_extent:
        m_tile = n_tile = covered(variant, tile, lambda n: problem(n, n, n))
    else:
        m_tile = covered(variant, tile, lambda m: problem(m, 1, 1))
        n_tile = covered(variant, tile, lambda n: problem(1, n, 1))
    sizes: list[tuple[int, ...]] = [
        (1, 1, 1),
        (m_tile + 1, n_tile + 1, k_tile + 1),
        tuple(rounded_up(extent + 1, ROUND) for extent in (m_tile, n_tile, k_tile)),
        (m_tile + 1, n_tile + 1, SMALL_K),
        (prime(m_tile), prime(n_tile), prime(k_tile)),
        (m_tile + 1, 1, 2 * k_tile + 3),
        (1, n_tile + 1, 3 * k_tile - 1),
    ]
    if variant.only_extent:
        edge = min(m_tile, WIDEST_SQUARE)
        edges = (1, edge + 1, rounded_up(edge + 1, ROUND), prime(edge), 2 * edge + 3)
        sizes = [(n, n, n) for n in edges if n <= WIDEST_SQUARE + ROUND]
    elif not has_k:  # a kernel may loop over M or N in steps that do not depend on the tile
        sizes += [(131, 37, 1), (37, 131, 1)]
    edge_cases = []
    for m, n, k in sizes:
        max_k = k if variant.only_extent else max(2, MAX_PRODUCTS // (m * n))
        edge_case = problem(m, n, min(k, max_k) if has_k else 1)
        edge_cases.append(affordable(variant, tile, edge_case))
    return taken(variant, tile, edge_cases)


def taken(variant: Source, tile: Config | None, problems: Iterable[Problem]) -> list[Problem]:
    """Return for each problem the nearest problem that the variant takes, without repetitions."""
    near = filter(None, (nearest(variant, tile, problem) for problem in problems))
    return list({problem.size: problem for problem in near}.values())


def affordable(variant: Source, tile: Config | None, problem: Problem) -> Problem:
    """Halve N of a problem without K until the problem is small enough. N stays odd or round."""

    def too_much() -> bool:
        launched = Case(variant=variant, tile=tile, problem=problem).launch.sequence
        all_threads = sum(launch.blocks * launch.threads_per_block for launch in launched)
        return problem.m * problem.n > MAX_PRODUCTS or all_threads > MAX_THREADS

    while not problem.operation.has_k and problem.n > SHORT and too_much():
        half = problem.n // 2
        n = rounded_down(half, ROUND) if problem.n % ROUND == 0 else half | 1
        problem = replace(problem, n=n)
    return problem


def nearest(variant: Source, tile: Config | None, problem: Problem) -> Problem | None:
    """Return the problem if the variant takes it, or else a problem with rounded extents.

    If the variant takes none of these sizes, squares (all extents equal) are tried. Return None if
    the variant takes no square either.
    """
    extents = [*problem.extents.values()]
    middle = sorted(extents)[(len(extents) - 1) // 2]
    for each in (extents, [middle] * len(extents)):
        for rounded in (rounded_up, rounded_down):
            for step in (1, 2, 4, 8, 16, 32, 64, 128):
                size = problem.operation.size_of(rounded(extent, step) for extent in each)
                if variant.why_not(tile, near := problem.at(size)) is None:
                    return near
    return None


def rounded_up(extent: int, step: int) -> int:
    """Return the extent rounded up to a multiple of the step."""
    return -(-extent // step) * step


def rounded_down(extent: int, step: int) -> int:
    """Return the extent rounded down to a multiple of the step, but at least 1."""
    return max(1, extent // step * step)


def covered(variant: CudaVariant, tile: Config, problem: Callable[[int], Problem]) -> int:
    """Return the largest extent, up to `WIDEST`, that a single block covers."""

    def blocks(extent: int) -> int:
        return variant.launch(tile, problem(extent)).main.blocks

    return max(1, bisect.bisect_right(range(1, WIDEST + 1), blocks(1), key=blocks))


def prime(limit: int) -> int:
    """Return the largest prime below the limit, or 1 if there is no such prime."""
    below = (n for n in count(limit - 1, -1) if all(n % d for d in range(2, n)))
    return max(1, next(below))


def stated_problems(
    variant: Source, tile: Config | None, dtype: str, column_major: tuple[str, ...]
) -> list[Problem]:
    """Return problems near the edges of a tile, for an operation that is not a matrix product.

    Each extent takes four values: 1, two numbers above the extent that a block covers, and the
    largest prime below this extent. One of the two numbers is round. If blocks cover equal extents,
    the numbers above still differ, because a kernel may take one extent for another.
    """
    operation = OPERATIONS[variant.op]
    places = range(len(operation.extents))

    def problem(extents: Iterable[int]) -> Problem:
        stated = Problem.of(variant.op, operation.size_of(extents), dtype)
        return replace(stated, column_major=column_major)

    def only(at: int, extent: int) -> list[int]:
        return [extent if at == place else 1 for place in places]

    blocks = [HOST_TILE for _ in places]
    if isinstance(variant, CudaVariant) and tile is not None:
        blocks = [
            covered(variant, tile, lambda extent, at=at: problem(only(at, extent)))  # type: ignore[misc]
            for at in places
        ]
    sizes = [
        [1 for _ in places],
        [block + 1 + 2 * at for at, block in enumerate(blocks)],
        [rounded_up(block + 1, ROUND) + ROUND * at for at, block in enumerate(blocks)],
        [prime(block) for block in blocks],
        *(only(at, block + 1) for at, block in enumerate(blocks)),
    ]
    for extents in sizes:
        while problem(extents).flops > MAX_WORK and max(extents) > SHORT:
            largest = extents.index(max(extents))
            extents[largest] = extents[largest] // 2 | (extents[largest] % 2)
    return taken(variant, tile, map(problem, sizes))
