"""Arranges the values of an input, so that the parts of the input have different sums.

In a large number of independent values, the sum of every eighth value is nearly an eighth of the
whole sum, and all rows have nearly the same sum. Then a solution that leaves out most of a sum may
be judged right, within the tolerance. An arranged input has the same values at other positions, so
that such a solution is wrong.
"""

import math
from itertools import chain, pairwise
from typing import Any

import numpy as np

TYPES = {"float16", "bfloat16", "float32", "float64"}
SMALLEST, LARGEST = 64, 2**26  # minimum and maximum number of elements of an arranged input
SHARE = 0.9  # probability that an input is arranged
AXES = 2  # maximum number of axes along which values are moved, one after the other
SHORT = (1, 1, 2, 3, 4, 5, 8)  # lengths of short blocks, one of which is drawn
PARTS = 8  # number of groups of lines; in half of the inputs, each group has its own blocks
STEPS = 4  # number of times that each value is compared with another value
MOST_ZEROS = 1e-3  # maximum share of zeros in values that count as independent
MIN_LINES = 16  # minimum number of lines whose means show whether values are independent
FACTOR = 3.0  # maximum factor between the means' variance and its value for independent values


def arrange(values: Any, generator: np.random.Generator, xp: Any = np) -> None:
    """Move the values of an array to other positions, in place. `xp` is NumPy or torch.

    The values must be independent, unlike the values of a triangular matrix, for example.
    """
    if generator.random() >= SHARE:
        return
    axes = [at for at, extent in enumerate(values.shape) if extent > 1]
    for axis in generator.permutation(axes)[:AXES].tolist():
        by_size = bool(generator.integers(2))
        lines = xp.moveaxis(values, axis, -1)
        parts = PARTS if values.ndim > 1 and generator.integers(2) else 1
        ends = [len(lines) * part // parts for part in range(parts + 1)]
        for start, end in pairwise(ends):
            _separate(lines[start:end], generator, xp, by_size=by_size)


def is_arrangeable(shape: tuple[int, ...], dtype: str) -> bool:
    """Whether `arrange` may move the values of a tensor with this shape and element type."""
    return dtype in TYPES and SMALLEST <= math.prod(shape) <= LARGEST


def is_independent(values: Any, xp: Any = np) -> bool:
    """Whether float64 values look like independent values of one distribution.

    `xp` is the module of the array, NumPy or torch.
    """
    if not xp.isfinite(values).all() or int((values == 0).sum()) > MOST_ZEROS * _count(values):
        return False
    is_square = values.ndim > 1 and values.shape[-1] == values.shape[-2]
    if is_square and bool((values == values.swapaxes(-1, -2)).all()):
        return False
    return all(
        1 / FACTOR <= ratio <= FACTOR
        for ratio in chain(_ratios(values), _ratios(xp.square(values)))
    )


def _ratios(values: Any) -> list[float]:
    """Return a ratio for each axis.

    The ratio is the variance of the means along the axis, divided by the variance that the means of
    independent values have.
    """
    variance = _variance(values)
    if not 0 < variance < np.inf:
        return [0.0]
    return [
        _variance(values.mean(axis)) * extent / variance
        for axis, extent in enumerate(values.shape)
        if extent > 1 and _count(values) // extent >= MIN_LINES
    ]


def _count(values: Any) -> int:
    return math.prod(values.shape)


def _variance(values: Any) -> float:
    mean = values.mean()
    return float(((values - mean) ** 2).mean())


def _separate(lines: Any, generator: np.random.Generator, xp: Any, *, by_size: bool) -> None:
    """Move the larger values into every second block of each line. The blocks are short or long."""
    extent = lines.shape[-1]
    if not len(lines):
        return
    if generator.integers(2):
        block = min(int(generator.choice(SHORT)), extent // 2)
    else:
        block = int(generator.integers(1 + extent // 8, extent // 2 + 1))
    whole = extent - extent % (2 * block)
    first = int(generator.integers(2)) * (extent - whole)  # the remaining values stay in place
    pairs = lines[..., first : first + whole].reshape(*lines.shape[:-1], -1, 2, block)
    low, high = pairs[..., 0, :], pairs[..., 1, :]
    for _ in range(STEPS):
        shifts = [int(generator.integers(size)) for size in low.shape[-2:]]
        low = xp.roll(low, shifts, (-2, -1))
        is_larger = abs(low) > abs(high) if by_size else low > high
        low, high = xp.where(is_larger, high, low), xp.where(is_larger, low, high)
    order = (high, low) if generator.integers(2) else (low, high)
    lines[..., first : first + whole] = xp.stack(order, -2).reshape(*lines.shape[:-1], whole)
