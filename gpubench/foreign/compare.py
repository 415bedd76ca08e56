"""Compares the results of a launch with the right results: by the tolerance, and further checks."""

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from gpubench.foreign.statement import Facts, Part, Tolerance
from gpubench.hardware.host import cpu_threads
from gpubench.model import Compared

Values = NDArray[np.float64]
Content = bytes | memoryview
T = TypeVar("T")

OUTSIDE = 10.0
"""Largest error of an element outside the share that must be right, as a multiple of the tolerance,
and of the largest error of the reference in its own types."""

CHUNK = 256  # number of elements whose error is compared with how their right values vary

BLOCK = 2**16
"""Number of elements that are compared at once, so that what is computed stays in caches."""

MAX_THREADS = 8
MIN_BLOCKS = 8  # number of blocks that are worth several threads

VARIES = 0.5
"""Largest error of a chunk, relative to how its right values vary between launches."""

OWN_ERRORS = 8.0  # multiple of the errors of the reference in its own types that a chunk may have

MIN_PAIRS = 3  # number of pairs of launches from which the variation is known

ROUNDED_ONCE = 1.01  # factor of the unit roundoff, because a sum has errors of its own

NAMES = {"float4_e2m1fn_x2": "uint8"}  # types that NumPy lacks, and what is compared instead


class _Right(NamedTuple):
    """The right values of a result, element by element."""

    values: Values
    own: NDArray[Any]  # what the reference computes in its own types
    own_error: float
    """Largest error of the reference in its own types, as a multiple of the tolerance."""

    is_wide: bool  # whether the right values are those in float64


class _Launches(NamedTuple):
    """The right values of a result in other launches."""

    spread: Values | None
    """Mean square of how each chunk varies between launches; None while it is not known."""

    earlier: list[Values]
    """The right values of the first launch, and of the launch before."""


class Comparison:
    """Compares results of a workload, and keeps how the right results vary between launches."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._first: list[Values] = []
        self._last: list[Values] = []
        self._squares = [np.zeros(1) for _ in facts.outputs]
        self._pairs = 0

    def with_reference(self, native: Content, wide: Sequence[Content]) -> "WithReference":
        """Return the comparison with the right results of a launch.

        The float64 results are right if the reference's results in its own types are within the
        tolerance of them. Otherwise, small differences have large effects, and the results in the
        reference's own types are right.
        """
        content = np.frombuffer(native, np.uint8)
        right = [
            _right(_values(content, part), wide[at] if at < len(wide) else b"", tolerance, part)
            for at, (part, tolerance) in enumerate(
                zip(self._facts.outputs, self._facts.tolerances, strict=True)
            )
        ]
        before = [each for each in (self._first, self._last) if each]
        self._learn([each.values for each in right])
        has_spread = self._pairs >= MIN_PAIRS
        launches = [
            _Launches(squares / self._pairs if has_spread else None, [each[at] for each in before])
            for at, squares in enumerate(self._squares)
        ]
        return WithReference(self._facts, right, launches)

    def _learn(self, right: list[Values]) -> None:
        """Add how the right values differ from the right values of the launch before."""
        last, self._last = self._last, right
        self._first = self._first or right
        if not last:
            return
        squares = [*map(_squares_of_differences, right, last)]
        if any(each.any() for each in squares):
            self._squares = [x + y for x, y in zip(self._squares, squares, strict=True)]
            self._pairs += 1


class WithReference:
    """Compares results with the right results of a launch."""

    def __init__(self, facts: Facts, right: list[_Right], launches: list[_Launches]) -> None:
        self._facts, self._right, self._launches = facts, right, launches

    @property
    def is_wide(self) -> bool:
        """Whether the float64 results are the right results of floating-point numbers."""
        pairs = zip(self._facts.outputs, self._right, strict=True)
        return all(each.is_wide for part, each in pairs if _roundoff(part.dtype))

    def __call__(self, content: NDArray[np.uint8]) -> Compared:
        """Compare the bytes of the results."""
        outputs, tolerances = self._facts.outputs, self._facts.tolerances
        each = [
            _compared(_values(content, part), right, launches, tolerance, part)
            for part, tolerance, right, launches in zip(
                outputs, tolerances, self._right, self._launches, strict=True
            )
        ]
        return Compared(
            reason=next((one.reason for one in each if one.reason), ""),
            judged=max(one.judged for one in each),
            largest=max(one.largest for one in each),
            rms=max(one.rms for one in each),
        )


def _right(own: NDArray[Any], wide: Content, tolerance: Tolerance, part: Part) -> _Right:
    """Return the right values: in float64, if the reference's own values agree with these."""
    if wide:
        values = np.frombuffer(wide, np.float64)
        ratios, _ = _errors(own, values, tolerance, part)
        if judged(ratios, tolerance) <= 1:
            return _Right(values, own, float(ratios.max(initial=0.0)), is_wide=True)
    return _Right(own.astype(np.float64), own, 0.0, is_wide=False)


def _compared(
    result: NDArray[Any], right: _Right, launches: _Launches, tolerance: Tolerance, part: Part
) -> Compared:
    ratios, off = _errors(result, right.values, tolerance, part)
    error = judged(ratios, tolerance)
    worst = float(off.max(initial=0.0))
    largest = _relative(worst, _largest(right.values))
    rms = _relative(_root(off), _root(right.values))
    reason = ""
    if not result.any() and right.values.any():
        reason = "the result is all zeros"
    elif ratios.max(initial=0.0) > 1:
        reason = _why_outside(result, ratios, error, right, launches, tolerance, part)
    cap = tolerance.cap
    if not reason and cap is not None and worst > cap:
        reason = f"an element is off by {worst:.2g}, and {cap:g} is allowed"
    if not reason and launches.spread is not None and worst:
        reason = _why_not_computed(off, right, launches.spread, part)
    return Compared(reason, error, largest, rms)


def _why_outside(
    result: NDArray[Any],
    ratios: Values,
    error: float,
    right: _Right,
    launches: _Launches,
    tolerance: Tolerance,
    part: Part,
) -> str:
    """Return why values are wrong, some of which exceed the tolerance."""
    values = result.astype(np.float64)
    if np.isnan(values).any() and not np.isnan(right.values).any():
        return "the result holds NaN: an element was not written, or computed from garbage"
    if not error <= 1:
        for launch in launches.earlier:
            if judged(_errors(result, launch, tolerance, part)[0], tolerance) <= 1:
                return "the result is that of an earlier launch: it was kept, and not computed"
        share = math.floor(1000 * float((ratios <= 1).mean())) / 10  # never 100 %
        return f"{share:g} % of the elements are right by their tolerance ({tolerance})"
    limit = OUTSIDE * max(1.0, right.own_error)
    far = ratios > limit
    if not _roundoff(part.dtype):  # integers that were rounded may differ by 1
        far &= np.abs(values - right.values) > 1
    outside = np.flatnonzero(far)
    if not outside.size:
        return ""
    return (
        f"within their tolerance, but {outside.size:,} of {values.size:,} elements are off by more "
        f"than {limit:.0f} times it: {_span(int(outside[0]), int(outside[-1]))}"
    )


def _why_not_computed(off: Values, right: _Right, spread: Values, part: Part) -> str:
    """Return which elements have errors as large as the right values vary between launches.

    In a chunk, the mean error counts. An error of a single element counts if it is also as large as
    half of the element.
    """

    @np.errstate(invalid="ignore", over="ignore")
    def missed_in(block: slice) -> list[int]:
        errors = off[block]
        if not errors.any():
            return []
        size = np.abs(right.values[block])
        own = np.abs(right.own[block] - right.values[block])
        usual = np.maximum(OWN_ERRORS * own, 4 * _roundoff(part.dtype) * size)
        varies = spread[block.start // CHUNK : -(-block.stop // CHUNK)]
        limit = np.maximum(VARIES**2 * varies, _chunk_means(usual**2))
        in_chunk = np.repeat(_chunk_means(errors**2) > limit, CHUNK)[: errors.size]
        root = np.repeat(np.sqrt(varies), CHUNK)[: errors.size]
        alone = errors > np.maximum(VARIES * np.maximum(root, size), usual)
        missed = np.flatnonzero((in_chunk | alone) & (root > 0))
        return [block.start + int(at) for at in (*missed[:1], *missed[-1:])]

    span = [at for missed in _of_blocks(off.size, missed_in) for at in missed]
    if not span:
        return ""
    return (
        f"within their tolerance, but the errors of {_span(span[0], span[-1])} are as large as "
        "what the right values vary from launch to launch: not computed?"
    )


def _of_blocks(count: int, function: Callable[[slice], T]) -> list[T]:
    """Return what a function returns for each block of a number of elements.

    Blocks consist of whole chunks. Threads are of use, as NumPy computes without Python's lock.
    """
    blocks = [slice(at, min(at + BLOCK, count)) for at in range(0, count, BLOCK)]
    if len(blocks) < MIN_BLOCKS:
        return [*map(function, blocks)]
    with ThreadPoolExecutor(min(MAX_THREADS, cpu_threads())) as pool:
        return [*pool.map(function, blocks)]


def _errors(
    result: NDArray[Any], right: Values, tolerance: Tolerance, part: Part
) -> tuple[Values, Values]:
    """Return the error of each element as a part of the tolerance, and the error.

    Rounding the right value once to the result's type is no error. The part is infinite if only one
    of the two values is a finite number.
    """
    ratios, off = np.empty(result.size), np.empty(result.size)
    relative = tolerance.relative + ROUNDED_ONCE * _roundoff(part.dtype)
    absolute = tolerance.absolute + _smallest(part.dtype)

    @np.errstate(invalid="ignore", over="ignore", divide="ignore")
    def compare(block: slice) -> None:
        values, expected = result[block].astype(np.float64), right[block]
        error = np.subtract(values, expected, out=off[block])
        np.abs(error, out=error)
        allowed = np.abs(expected)
        allowed *= relative
        allowed += absolute
        ratio = np.divide(error, allowed, out=ratios[block])
        if not np.isfinite(ratio).all():
            same = (values == expected) | (np.isnan(values) & np.isnan(expected))
            ratio[same] = 0.0
            ratio[~np.isfinite(ratio)] = np.inf
            error[same | np.isnan(error)] = 0.0

    _of_blocks(result.size, compare)
    return ratios, off


def judged(ratios: Values, tolerance: Tolerance) -> float:
    """Return the error that the share of elements which must be right does not exceed."""
    if tolerance.share >= 1 or not ratios.size:
        return float(ratios.max(initial=0.0))
    rank = min(ratios.size, max(1, math.ceil(tolerance.share * ratios.size))) - 1
    return float(np.partition(ratios, rank)[rank])


def _values(content: NDArray[np.uint8], part: Part) -> NDArray[Any]:
    """Return the elements of a result that lies in bytes."""
    kind = np.dtype(NAMES.get(part.dtype, part.dtype))
    strides = tuple(kind.itemsize * step for step in part.strides)
    return np.ndarray(part.shape, kind, content.data, part.offset, strides).reshape(-1)


def _roundoff(dtype: str) -> float:
    limits: Any = ml_dtypes.finfo  # it has no types
    return float(limits(dtype).eps) / 2 if dtype.startswith(("float", "bf")) else 0.0


def _smallest(dtype: str) -> float:
    limits: Any = ml_dtypes.finfo
    is_float = dtype.startswith(("float", "bf"))
    return float(limits(dtype).smallest_subnormal) / 2 if is_float else np.finfo(float).tiny


def _chunk_means(squares: Values) -> Values:
    """Return the mean of each chunk. What is not finite in right results does not count."""
    if not squares.size:
        return np.zeros(1)
    starts = np.arange(0, squares.size, CHUNK)
    lengths = np.diff([*starts, squares.size])
    means: Values = np.add.reduceat(squares, starts) / lengths
    if not np.isfinite(means).all():
        finite = np.where(np.isfinite(squares), squares, 0.0)
        means = np.add.reduceat(finite, starts) / lengths
    return means


def _squares_of_differences(right: Values, last: Values) -> Values:
    """Return for each chunk half of the mean square of how values differ between two launches."""

    @np.errstate(invalid="ignore", over="ignore")
    def squares(block: slice) -> Values:
        return _chunk_means((right[block] - last[block]) ** 2 / 2)

    blocks = _of_blocks(right.size, squares)
    return np.concatenate(blocks) if blocks else np.zeros(1)


@np.errstate(invalid="ignore", over="ignore")
def _root(values: Values) -> float:
    """Return the root of the mean square of the finite values."""
    total = float(np.dot(values, values))
    if math.isfinite(total):
        return math.sqrt(total / values.size) if values.size else 0.0
    finite = values[np.isfinite(values)]
    return math.sqrt(float(np.square(finite).mean())) if finite.size else 0.0


def _largest(values: Values) -> float:
    """Return the largest magnitude."""
    return max(float(values.max(initial=0.0)), -float(values.min(initial=0.0)))


def _relative(error: float, size: float) -> float:
    return error / size if size and math.isfinite(size) else error


def _span(first: int, last: int) -> str:
    return f"element {first:,}" if first == last else f"elements {first:,} to {last:,}"
