"""An exact probe: operands whose products never round, so a right result is right to the last bit.

Every element of the result is a single product, because one matrix has one element per row or
column, like a permutation. One factor of each product uses all its bits. The other factor is a
power of two, or an odd number for integers, whose product also keeps all bits. A kernel that rounds
its operands, or that loses or doubles a k, is therefore wrong in the last bit, whatever the
tolerance for a sum of many products.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache, partial
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np

from gpubench.engine.verify import WrongError
from gpubench.model import CudaVariant, Point, Precision, Problem

SIZES = {
    "gemm": ((149, 157, 139), (144, 160, 144)),
    "gemv": ((1283, 1283, 1), (1296, 1296, 1)),
    "gemv_t": ((1283, 1283, 1), (1296, 1296, 1)),
    "atax": ((1283, 1283, 1), (1296, 1296, 1)),
}
"""Prime extents, and multiples of 16 that few tiles divide. They give aligned and unaligned rows,
several tiles of K, and a remainder. M and N are at least K, or equal to each other, so that every k
has a product."""

SHRINK = (1, 2, 4, 8, 16, 32)
ROUND_UP = (1, 4, 16, 32, 64, 128, 256)
"""If a variant refuses a size, its extents are divided by a number, and rounded up to a
multiple."""

Probe = tuple[tuple[np.ndarray, ...], np.ndarray]
"""The operands and the result."""


def probe_problems(point: Point, capability: tuple[int, int] | None) -> list[Problem]:
    """Return the sizes at which a point's compiled kernels are probed.

    Sizes that need further kernels are left out, because these kernels would have to be compiled.
    If no size is left, the point's own size is used.
    """
    problems = (
        next((near for near in _near(point.problem, size) if _runs(point, near, capability)), None)
        for size in SIZES[point.problem.op]
    )
    return list(filter(None, problems)) or [point.problem]


def kernels_of(point: Point, problem: Problem) -> frozenset[str]:
    """Return the names of the compiled kernels that the point's variant launches for a problem."""
    if not isinstance(point.variant, CudaVariant) or point.tile is None:
        return frozenset()
    launch = point.variant.launch(point.tile, problem)
    return frozenset(step.kernel for step in launch.sequence)


def _near(problem: Problem, size: tuple[int, int, int]) -> Iterator[Problem]:
    for divisor, step in product(SHRINK, ROUND_UP):
        m, n, k = (-(-(extent // divisor) // step) * step for extent in size)
        yield replace(problem, m=m, n=n, k=k if problem.operation.has_k else 1)


def _runs(point: Point, problem: Problem, capability: tuple[int, int] | None) -> bool:
    return point.variant.why_not(point.tile, problem, capability) is None and kernels_of(
        point, problem
    ) <= kernels_of(point, point.problem)


@lru_cache(16)
def make_probes(problem: Problem, seed: int) -> tuple[Probe, Probe]:
    """Return two sets of operands: all bits in the first operand, or all bits in the second.

    The other operand has powers of two. For atax, A is a factor twice, so with all bits in A the
    product is rounded once.
    """
    rng, precision = np.random.default_rng(seed), problem.precision
    (rows, columns), second = problem.input_shapes
    probes = []
    for draws in ((_all_bits, _one_bit), (_one_bit, _all_bits)):
        draw_a, draw_b = (partial(draw, rng, precision) for draw in draws)
        match problem.op:
            case "gemm" if draws[0] is _all_bits:
                a, b = draw_a((rows, columns)), _one_a_row(rng, draw_b, second[::-1]).T
            case "gemv_t":
                a, b = _one_a_row(rng, draw_a, (columns, rows)).T, draw_b(second)
            case _:
                a, b = _one_a_row(rng, draw_a, (rows, columns)), draw_b(second)
        if problem.op == "atax":
            a[columns:] = 0  # no column has two elements
        operands = np.ascontiguousarray(a), np.ascontiguousarray(b)
        probes.append((operands, _exact(problem, *operands)))
    return probes[0], probes[1]


def _all_bits(rng: np.random.Generator, precision: Precision, shape: Any) -> Any:
    """Draw numbers of either sign in [1/2, 1) whose last bit is set, or any integers."""
    kind = np.dtype(precision.element)
    if kind.kind == "i":
        limits = np.iinfo(kind)
        return rng.integers(limits.min, limits.max, shape, kind.type, endpoint=True)
    limits_of: Any = ml_dtypes.finfo  # it has no types
    bits = int(limits_of(kind).nmant) + 1
    if precision.input_roundoff:  # the bits that are left of a rounded operand
        bits = round(-np.log2(precision.input_roundoff))
    significand = 2 * rng.integers(2 ** (bits - 2), 2 ** (bits - 1), shape) + 1
    return (rng.choice((-1.0, 1.0), shape) * np.ldexp(significand, -bits)).astype(kind)


def _one_bit(rng: np.random.Generator, precision: Precision, shape: Any) -> Any:
    """Draw powers of two such that a product of three stays in range, or odd integers."""
    kind = np.dtype(precision.element)
    if kind.kind == "i":
        return _all_bits(rng, precision, shape) | kind.type(1)
    limits_of: Any = ml_dtypes.finfo
    largest = -int(limits_of(kind).minexp) // 4
    return np.ldexp(1.0, rng.integers(-largest, largest + 1, shape)).astype(kind)


def _one_a_row(
    rng: np.random.Generator, draw: Callable[[int], np.ndarray], shape: tuple[int, ...]
) -> np.ndarray:
    """Return a matrix with one element per row. The numbers per column differ by at most one."""
    rows, columns = shape
    elements = draw(rows)
    matrix = np.zeros(shape, elements.dtype)
    matrix[np.arange(rows), np.resize(rng.permutation(columns), rows)] = elements
    return matrix


def _exact(problem: Problem, a: Any, b: Any) -> Any:
    """Return the exact result. A wider type, or wrapping integers, hold each product."""
    wide = np.int32 if problem.precision.is_integer else np.float64
    a, b = a.astype(wide), b.astype(wide)
    match problem.op:
        case "gemv_t":
            result = a.T @ b
        case "atax":
            result = a.T @ (a @ b)
        case _:
            result = a @ b
    return result.astype(problem.precision.result)


def require_exact(problem: Problem, xp: Any, output: Any, expected: np.ndarray) -> None:
    """Raise WrongError unless an output equals the expected one bit for bit. NaN is wrong."""
    if wrong := int((output.astype(np.float64) != xp.asarray(expected, np.float64)).sum()):
        raise WrongError(
            f"exact probe at {problem.size}: {wrong:,} of {expected.size:,} results, each a single "
            "product, differ from it: an operand was rounded, or a product lost or added twice"
        )
