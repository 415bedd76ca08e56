"""Makes operands that span their type, to find kernels that are right only for usual values.

The magnitudes of such operands cover a large part of the type's range.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpubench.engine.operands.make import make_many, random_fill
from gpubench.model import Fill, Problem

SPANNED = 0.25
"""Probability that the operands of a launch span their type, if the sweep requests uniform
operands."""

BLOCKS = 4  # number of blocks of an extent, each with its own factor

EXPONENTS = {"float8_e4m3fn": 2, "float8_e5m2": 2, "float16": 3, "float64": 1}
"""Largest exponent of a factor, for types with a small range. A factor is a power of two, and an
element may be multiplied by two factors. For float64, the exponent is small because the reference
keeps only a few more bits than float64, relative to the largest element of an operand."""

WIDE_EXPONENT = 10  # largest exponent for all other types


def which_span(seed: int, launches: int, fill: Fill) -> list[bool]:
    """Decide for each launch, by a secret seed, whether the operands span their type."""
    draws: list[bool] = (_rng(seed).random(launches) < SPANNED).tolist()
    return draws if fill == Fill.UNIFORM else [False] * launches


def new_inputs(
    problem: Problem, seed: int, spans: Sequence[bool], fill: Fill
) -> Iterator[tuple[NDArray[Any], ...]]:
    """Yield the operands of each launch. A secret seed determines the operands.

    Where `spans` is true, operands of a product span their type. If the operands of any launch span
    their type, the operands of all other launches are uniform. If the operation is not a product,
    the operands are made as the operation states. If `spans` is then true, the values are random.
    """
    is_wide = any(spans) and problem.operation.is_product
    fill = Fill.UNIFORM if is_wide else random_fill(fill) if any(spans) else fill
    inputs = make_many(problem, seed, fill, len(spans))
    rng = _rng(~seed)
    for each, is_spanned in zip(inputs, spans, strict=True):
        is_chain = problem.operation.is_chain
        yield spanned(each, rng, is_chain=is_chain) if is_wide and is_spanned else each


def _rng(seed: int) -> np.random.Generator:
    return np.random.default_rng([seed % 2**64, 1])


def spanned(
    inputs: Sequence[NDArray[Any]], rng: np.random.Generator, *, is_chain: bool = False
) -> tuple[NDArray[Any], ...]:
    """Return operands whose blocks are scaled up and down by powers of two.

    Blocks of rows of A have different factors. In a matrix product, blocks of columns of A and of B
    have factors, too. Each row of B is divided by the factor of the matching column of A. So each
    block contributes about the same to a sum. Integers are not scaled: whole rows of A and columns
    of B get the smallest or the largest value. In a chain of products, A is a factor twice, so its
    factors are smaller.
    """
    first, second = inputs
    if first.dtype.kind == "i":
        return _with_extremes(first, 0, rng), _with_extremes(second, second.ndim - 1, rng)
    exponent = EXPONENTS.get(first.dtype.name, WIDE_EXPONENT)
    exponent = max(1, exponent // 3) if is_chain else exponent

    def factors(extent: int) -> NDArray[Any]:
        blocks = 2.0 ** (exponent * rng.integers(-1, 1, BLOCKS, endpoint=True))
        return blocks[np.arange(extent) * BLOCKS // extent]

    rows = factors(first.shape[0])[:, None]
    if second.ndim == 1:
        return _scaled(first, rows), second
    inner, columns = factors(first.shape[1]), factors(second.shape[1])
    return _scaled(first, rows * inner), _scaled(second, columns / inner[:, None])


def _scaled(array: NDArray[Any], factor: NDArray[Any]) -> NDArray[Any]:
    wide = np.float64 if array.dtype == np.float64 else np.float32
    scaled: NDArray[Any] = array.astype(wide) * factor.astype(wide)
    return scaled.astype(array.dtype)


def _with_extremes(array: NDArray[Any], axis: int, rng: np.random.Generator) -> NDArray[Any]:
    """Return an array of integers in which two thirds of the lines have extreme values.

    One third of the lines gets the smallest value of the type, and another third gets the largest
    value. Some elements with the largest value are reduced by one, so that a sum in a
    floating-point type is rounded.
    """
    limits, copy = np.iinfo(array.dtype), array.copy()
    lines = np.moveaxis(copy, axis, 0)
    smallest, largest, _ = np.array_split(rng.permutation(len(lines)), 3)
    lines[smallest] = limits.min
    lines[largest] = limits.max - rng.integers(0, 1, lines[largest].shape, endpoint=True)
    return copy
