"""Uses NumPy for arithmetic on the elements of results in host memory.

`on_device.py` has the same functions for results in the memory of a GPU.
"""

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from gpubench.backends.arrays import on_host as array_on_host
from gpubench.foreign.statement import Part
from gpubench.hardware.host import cpu_threads

Values = NDArray[np.float64]
T = TypeVar("T")

CHUNK = 256  # number of elements of a chunk, whose mean error and mean variation are compared

BLOCK = 2**16
"""Number of elements that are compared at once, so that intermediate arrays stay in caches."""

MAX_THREADS = 8
MIN_BLOCKS = 8  # minimum number of blocks for which several threads are used

VARIES = 0.5
"""Maximum error of a chunk, as a multiple of how much the chunk's right values vary between
launches."""

EXACT_BELOW = 2.0**62  # a larger difference of two integers may exceed an int64

NAMES = {"float4_e2m1fn_x2": "uint8"}  # types that NumPy lacks, and types that replace them


def tensor_of(output: Any) -> Any:
    """Return the bytes of an output in host memory."""
    return array_on_host(output)


def values_of(content: bytes | memoryview | NDArray[np.uint8], part: Part) -> NDArray[Any]:
    """Return the elements of a result, whose bytes are in `content`."""
    kind = np.dtype(NAMES.get(part.dtype, part.dtype))
    strides = tuple(kind.itemsize * step for step in part.strides)
    memory = np.frombuffer(content, np.uint8).data
    return np.ndarray(part.shape, kind, memory, part.offset, strides).reshape(-1)


def right_values(content: bytes | memoryview) -> Values:
    """Return the elements of a right result, whose float64 bytes are in `content`."""
    return np.frombuffer(content, np.float64)


def widened(values: NDArray[Any]) -> Values:
    """Convert values to float64."""
    return values.astype(np.float64)


def of_blocks(count: int, function: Callable[[slice], T]) -> list[T]:
    """Call a function on each block of `count` elements, and return a list of the results.

    A block consists of whole chunks. Several threads help, because NumPy releases Python's lock.
    """
    blocks = [slice(at, min(at + BLOCK, count)) for at in range(0, count, BLOCK)]
    if len(blocks) < MIN_BLOCKS:
        return [*map(function, blocks)]
    with ThreadPoolExecutor(min(MAX_THREADS, cpu_threads())) as pool:
        return [*pool.map(function, blocks)]


def errors(
    result: NDArray[Any],
    right: Values,
    absolute: float,
    relative: float,
    own: NDArray[Any] | None = None,
) -> tuple[Values, Values]:
    """Return each element's error divided by the allowed error, and each element's error.

    The ratio is infinite if only one of the two values is a finite number. `own` has the
    reference's results in the result's type. With `own`, errors of integers are exact.
    """
    ratios, off = np.empty(result.size), np.empty(result.size)

    @np.errstate(invalid="ignore", over="ignore", divide="ignore")
    def compare(block: slice) -> None:
        values, expected = result[block].astype(np.float64), right[block]
        error = np.subtract(values, expected, out=off[block])
        if own is not None and result.dtype.kind in "iu":  # float64 rounds integers above 2⁵³
            exact = result[block].astype(np.int64) - own[block].astype(np.int64)
            rounding = own[block].astype(np.float64) - expected
            np.add(exact, rounding, out=error, where=np.abs(error) < EXACT_BELOW)
        np.abs(error, out=error)
        allowed = np.abs(expected)
        allowed *= relative
        allowed += absolute
        ratio = np.divide(error, allowed, out=ratios[block])
        if not np.isfinite(ratio).all():
            is_equal = (values == expected) & ~(error > 0)
            same = is_equal | (np.isnan(values) & np.isnan(expected))
            ratio[same] = 0.0
            ratio[~np.isfinite(ratio)] = np.inf
            error[same | np.isnan(error)] = 0.0

    of_blocks(result.size, compare)
    return ratios, off


def ranked(values: Values, rank: int) -> float:
    """Return the value at position `rank`, counted from 0, of the values in ascending order."""
    return float(np.partition(values, rank)[rank])


def largest(values: Values) -> float:
    """Return the largest value, or 0 if all values are negative."""
    return float(values.max(initial=0.0))


def magnitude(values: Values) -> float:
    """Return the largest magnitude of the finite values, or 0 if there are none."""
    largest_of_all = max(float(values.max(initial=0.0)), -float(values.min(initial=0.0)))
    if math.isfinite(largest_of_all):
        return largest_of_all
    return magnitude(values[np.isfinite(values)])


@np.errstate(invalid="ignore", over="ignore")
def root(values: Values) -> float:
    """Return the root of the mean square of the finite values."""
    total = float(np.dot(values, values))
    if math.isfinite(total):
        return math.sqrt(total / values.size) if values.size else 0.0
    finite = values[np.isfinite(values)]
    return math.sqrt(float(np.square(finite).mean())) if finite.size else 0.0


def has_any(values: NDArray[Any]) -> bool:
    """Whether any value differs from 0."""
    return bool(values.any())


def has_nan(values: Values) -> bool:
    """Whether any value is NaN."""
    return bool(np.isnan(values).any())


def share_within(ratios: Values) -> float:
    """Return the fraction of the ratios that are at most 1."""
    return float((ratios <= 1).mean())


def span(is_chosen: NDArray[np.bool_]) -> tuple[int, int, int]:
    """Return the number of chosen elements, and the indices of the first and the last element."""
    chosen = np.flatnonzero(is_chosen)
    return (chosen.size, int(chosen[0]), int(chosen[-1])) if chosen.size else (0, 0, 0)


def missed(
    off: Values,
    right: Values,
    own: NDArray[Any],
    varies: Values,
    own_errors: float,
    roundoff: float,
) -> tuple[int, int, int]:
    """Return the `span` of elements whose errors are as large as the right values' variation.

    A chunk is missed if its root mean square error exceeds `VARIES` times this variation. A single
    element is missed if its error exceeds `VARIES` times the variation, and `VARIES` times the
    element. `varies` has the mean square of each chunk's variation between launches. Errors below
    `own_errors` times the errors of the reference's own results do not count.
    """
    is_missed = np.zeros(off.size, np.bool_)

    @np.errstate(invalid="ignore", over="ignore")
    def find(block: slice) -> None:
        error = off[block]
        if not error.any():
            return
        size = np.abs(right[block])
        usual = np.maximum(own_errors * np.abs(own[block] - right[block]), 4 * roundoff * size)
        here = varies[block.start // CHUNK : -(-block.stop // CHUNK)]
        limit = np.maximum(VARIES**2 * here, chunk_means(usual**2))
        in_chunk = np.repeat(chunk_means(error**2) > limit, CHUNK)[: error.size]
        typical = np.repeat(np.sqrt(here), CHUNK)[: error.size]
        alone = error > np.maximum(VARIES * np.maximum(typical, size), usual)
        is_missed[block] = (in_chunk | alone) & (typical > 0)

    of_blocks(off.size, find)
    return span(is_missed)


def chunk_means(squares: Values) -> Values:
    """Return the mean of each chunk. Values that are not finite count as 0."""
    if not squares.size:
        return np.zeros(1)
    starts = np.arange(0, squares.size, CHUNK)
    lengths = np.diff([*starts, squares.size])
    means: Values = np.add.reduceat(squares, starts) / lengths
    if not np.isfinite(means).all():
        finite = np.where(np.isfinite(squares), squares, 0.0)
        means = np.add.reduceat(finite, starts) / lengths
    return means


def squares_of_differences(right: Values, last: Values) -> Values:
    """Return half the mean squared difference between two launches' values, for each chunk."""

    @np.errstate(invalid="ignore", over="ignore")
    def squares(block: slice) -> Values:
        return chunk_means((right[block] - last[block]) ** 2 / 2)

    blocks = of_blocks(right.size, squares)
    return np.concatenate(blocks) if blocks else np.zeros(1)
