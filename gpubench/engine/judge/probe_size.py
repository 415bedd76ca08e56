"""Chooses the sizes of launches that only judge a kernel, such as the sizes of its probes.

The size of a probe resembles the point's size. The extents of the probe have the same remainders
(`PERIOD`), span several tiles, and do not exceed the point's extents. A kernel is therefore
launched only at sizes that resemble the user's sizes. A sum of the probe has as many products as a
sum of the point. Our own kernels are an exception, because their code is the same for any number of
products.
"""

import math
from dataclasses import replace

from gpubench.model import Cache, CallVariant, CudaVariant, HostVariant, Point, Problem, Scope
from gpubench.plan.scrutiny import scrutiny_of

PERIOD = 256
"""Modulus for which the extents of a probe and of its point have equal remainders. For users'
kernels, the remainders modulo the tile's extents are also equal. Our own kernels check their
bounds, so these remainders do not matter for our kernels."""

TILES = (2, 4, 8, 16, 32)
"""Numbers of tiles that a probe may span in each direction, if the point spans more tiles. A probe
uses the first number at which the variant launches the same kernels as at the point's size."""

LIBRARY_TILE = 32  # extent assumed for the tile of a function, which may refuse small sizes

UNUSUAL = (149, 157, 139, 13, 11, 7)
"""Prime extents. A kernel that is right at these extents checks its bounds, and requires no
alignment."""

UNUSUAL_LONG = (1283, 1283)  # prime extents for operations that memory bandwidth limits


def probe_problem(point: Point, capability: tuple[int, int] | None) -> Problem:
    """Return the problem on which a point's kernels are probed. The problem is usually small.

    The result is the point's own problem if the variant launches other kernels at all small sizes.
    The result is also the point's own problem for two kinds of functions. The kernels of a host
    function at other sizes are unknown. A function with fixed addresses may keep the addresses of a
    single size.
    """
    fixed = isinstance(point.variant, HostVariant) or point.variant.fixed_addresses
    if fixed or not point.problem.operation.has_product:
        return point.problem
    own, blocks, period = point.problem, _block(point), _period(point)
    kept = own.operation.terms if scrutiny_of(point.variant).probes_own_sizes else ""
    for tiles in TILES:
        min_extent = tiles * max(blocks, default=LIBRARY_TILE)
        problem = replace(
            own,
            m=own.m if kept == "M" else _near(own.m, period, min_extent),
            n=own.n if kept == "N" else _near(own.n, period, min_extent),
            k=own.k if kept == "K" else _near(own.k, period, min_extent),
        )
        if point.variant.why_not(point.tile, problem, capability) is None and kernels_of(
            point, problem
        ) == kernels_of(point, own):
            return problem
    return own


def fewer_rows(point: Point, rows: int) -> int:
    """Return how many rows to use for a launch from which the point's time is predicted.

    Our own kernels accept any number of rows, so the result is `rows`. For a user's kernel, the
    result is at least `rows`, and has the same remainder as the point's number of rows (`PERIOD`).
    The result is the point's own number of rows if the kernel has fixed addresses, if the kernel
    refuses the smaller number, or if the operation is not a product.
    """
    if not point.problem.operation.is_product:
        return point.problem.m
    if not scrutiny_of(point.variant).probes_own_sizes:
        return rows
    near = _near(point.problem.m, _period(point), rows)
    refused = point.variant.why_not(point.tile, replace(point.problem, m=near))
    return point.problem.m if refused or point.variant.fixed_addresses else near


def unusual_problem(point: Point, capability: tuple[int, int] | None) -> Problem | None:
    """Return a problem with prime extents, or None if the variant cannot be tried on it."""
    operation = point.problem.operation
    if operation.listed or point.variant.fixed_addresses:
        return None
    count = len(operation.extents)
    is_long = operation.bandwidth_bound and count <= len(UNUSUAL_LONG)
    extents = (UNUSUAL_LONG if is_long else UNUSUAL)[:count]
    problem = point.problem.at(operation.size_of(extents))
    if point.variant.why_not(point.tile, problem, capability):
        return None
    return problem if kernels_of(point, problem) <= kernels_of(point, point.problem) else None


def kernels_of(point: Point, problem: Problem) -> frozenset[str]:
    """Return the names of the compiled kernels that the point's variant launches for a problem."""
    if not isinstance(point.variant, CudaVariant) or point.tile is None:
        return frozenset()
    launch = point.variant.launch(point.tile, problem)
    return frozenset(part.kernel for part in launch.sequence)


def _block(point: Point) -> list[int]:
    """Return the extents of a point's tile, without the other parameters of the configuration."""
    if point.tile is None or point.variant.tiles is None:
        return []
    values = (point.tile[name] for name in point.variant.tiles.block)
    return [value for value in values if isinstance(value, int)]


def _period(point: Point) -> int:
    blocks = _block(point) if scrutiny_of(point.variant).probes_own_sizes else ()
    return math.lcm(PERIOD, *blocks)


def _near(extent: int, period: int, min_extent: int) -> int:
    """Return the smallest number that has the remainder of `extent` and is at least `min_extent`.

    Remainders are modulo `period`. The result is positive, and at most `extent`.
    """
    smallest = extent % period or period
    periods = max(0, math.ceil((min_extent - smallest) / period))
    return min(extent, smallest + periods * period)


def at_probe(point: Point, problem: Problem) -> Point:
    """Return the point at a probe's size, without a search for the best algorithm at that size."""
    variant = point.variant
    if isinstance(variant, CallVariant):
        variant = replace(variant, tune=None)
    return replace(point, problem=problem, variant=variant, cache=Cache.HOT, scope=Scope.KERNEL)
