"""Compares the results of a launch with the right ones: by the stated tolerance, and beside it."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from gpubench.foreign.statement import Facts, Part, Tolerance
from gpubench.model import Compared

Values = NDArray[np.float64]

OUTSIDE = 10.0
"""Largest error of an element outside the share that must be right, as a multiple of the tolerance,
and of the largest error of the reference in its own types."""

CHUNK = 256  # number of elements whose error is compared with how their right values vary

VARIES = 0.5
"""Largest error of a chunk, relative to how its right values vary between launches."""

OWN_ERRORS = 8.0  # multiple of the errors of the reference in its own types that a chunk may have

MIN_PAIRS = 3  # number of pairs of launches from which the variation is known

ROUNDED_ONCE = 1.01  # factor of the unit roundoff, because a sum has errors of its own

NAMES = {"float4_e2m1fn_x2": "uint8"}  # types that NumPy lacks, and what is compared instead


class _Right(NamedTuple):
    """The right values of a result."""

    values: Values
    own: Values  # what the reference computes in its own types
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

    def with_reference(self, native: bytes, wide: Sequence[bytes]) -> "WithReference":
        """Return the comparison with the right results of a launch.

        They are those in float64, if the reference in its own types is within the tolerance of
        them. Otherwise small differences have large effects, and the reference's own are used.
        """
        outputs, tolerances = self._facts.outputs, self._facts.tolerances
        content = np.frombuffer(native, np.uint8)
        own = [_values(content, part).astype(np.float64) for part in outputs]
        right = list(own)
        for at, (part, each) in enumerate(zip(outputs, wide, strict=False)):
            values = np.frombuffer(each, np.float64).reshape(part.shape)
            if judged(_ratios(own[at], values, tolerances[at], part), tolerances[at]) <= 1:
                right[at] = values
        launches = [each for each in (self._first, self._last) if each]
        earlier = [[values[at] for values in launches] for at in range(len(right))]
        self._learn(right)
        has_spread = self._pairs >= MIN_PAIRS
        spreads = [each / self._pairs if has_spread else None for each in self._squares]
        return WithReference(self._facts, [*map(_Right, right, own, spreads, earlier)])

    def _learn(self, right: list[Values]) -> None:
        """Add how the right values differ from those of the launch before."""
        last, self._last = self._last, right
        self._first = self._first or right
        if last and not all(map(np.array_equal, right, last)):
            pairs = zip(self._squares, right, last, strict=True)
            with np.errstate(invalid="ignore", over="ignore"):  # of infinities
                self._squares = [sums + _chunk_means((x - y) ** 2 / 2) for sums, x, y in pairs]
            self._pairs += 1


class WithReference:
    """Compares results with the right ones of a launch."""

    def __init__(self, facts: Facts, right: list[_Right]) -> None:
        self._facts, self._right = facts, right

    @property
    def is_wide(self) -> bool:
        """Whether the right results of floating-point numbers are those in float64."""
        pairs = zip(self._facts.outputs, self._right, strict=True)
        return all(each.values is not each.own for part, each in pairs if _roundoff(part.dtype))

    def __call__(self, content: NDArray[np.uint8]) -> Compared:
        """Compare the bytes of the results."""
        each = [
            _compared(_values(content, part), right, tolerance, part)
            for part, tolerance, right in zip(
                self._facts.outputs, self._facts.tolerances, self._right, strict=True
            )
        ]
        return Compared(
            reason=next((one.reason for one in each if one.reason), ""),
            judged=max(one.judged for one in each),
            largest=max(one.largest for one in each),
            rms=max(one.rms for one in each),
        )


@np.errstate(invalid="ignore", over="ignore", divide="ignore")
def _compared(result: NDArray[Any], right: _Right, tolerance: Tolerance, part: Part) -> Compared:
    values = result.astype(np.float64)
    ratios = _ratios(values, right.values, tolerance, part)
    error = judged(ratios, tolerance)
    off = np.where(np.isnan(ratios) | (ratios == 0), 0.0, np.abs(values - right.values))
    largest = _relative(float(off.max(initial=0.0)), float(np.abs(right.values).max(initial=0.0)))
    rms = _relative(_root(off), _root(right.values))
    reason = _why_outside(values, ratios, error, right, tolerance, part)
    cap = tolerance.cap
    if not reason and cap is not None and off.max(initial=0.0) > cap:
        reason = f"an element is off by {off.max():.2g}, and {cap:g} is allowed"
    return Compared(reason or _why_not_computed(off, right, part), error, largest, rms)


def _why_outside(
    values: Values,
    ratios: Values,
    error: float,
    right: _Right,
    tolerance: Tolerance,
    part: Part,
) -> str:
    """Return why values are not those that the tolerance allows."""
    if not values.any() and right.values.any():
        return "the result is all zeros"
    if np.isnan(values).any() and not np.isnan(right.values).any():
        return "the result holds NaN: an element was not written, or computed from garbage"
    if not error <= 1:
        for launch in right.earlier:
            if judged(_ratios(values, launch, tolerance, part), tolerance) <= 1:
                return "the result is that of an earlier launch: it was kept, and not computed"
        share = math.floor(1000 * float((ratios <= 1).mean())) / 10  # never 100 %
        return f"{share:g} % of the elements are right by their tolerance ({tolerance})"
    own = _ratios(right.own, right.values, tolerance, part)
    limit = OUTSIDE * max(1.0, float(np.nanmax(own, initial=0.0)))
    far = ~(ratios <= limit)
    if not _roundoff(part.dtype):  # integers that were rounded may differ by 1
        far &= np.abs(values - right.values) > 1
    if (outside := np.flatnonzero(far)).size:
        return (
            f"within their tolerance, but {outside.size:,} of {values.size:,} elements are off by "
            f"more than {limit:.0f} times it: {_span(outside)}"
        )
    return ""


def _why_not_computed(off: Values, right: _Right, part: Part) -> str:
    """Return which elements have errors as large as what the right values vary.

    In a chunk it is the mean error that counts. An error of a single element counts if it is also
    as large as half of the element.
    """
    if right.spread is None or not off.any():
        return ""
    errors, size = off.ravel(), np.abs(right.values).ravel()
    own = np.abs(right.own - right.values).ravel()
    usual = np.maximum(OWN_ERRORS * own, 4 * _roundoff(part.dtype) * size)
    limit = np.maximum(VARIES**2 * right.spread, _chunk_means(usual**2))
    in_chunk = np.repeat(_chunk_means(errors**2) > limit, CHUNK)[: errors.size]
    spread = np.repeat(np.sqrt(right.spread), CHUNK)[: errors.size]
    alone = errors > np.maximum(VARIES * np.maximum(spread, size), usual)
    missed = np.flatnonzero((in_chunk | alone) & (spread > 0))
    if not missed.size:
        return ""
    return (
        f"within their tolerance, but the errors of {_span(missed)} are as large as what the right "
        "values vary from launch to launch: not computed?"
    )


def _ratios(values: Values, right: Values, tolerance: Tolerance, part: Part) -> Values:
    """Return the error of each element as a part of the tolerance. Infinity: no number was right.

    Rounding the right value once to the result's type is no error.
    """
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        size = np.abs(right)
        rounding = ROUNDED_ONCE * _roundoff(part.dtype) * size + _smallest(part.dtype)
        allowed = tolerance.absolute + tolerance.relative * size + rounding
        same = (values == right) | (np.isnan(values) & np.isnan(right))
        ratios = np.where(same, 0.0, np.abs(values - right) / allowed)
    return np.where(np.isfinite(ratios), ratios, np.inf)


def judged(ratios: Values, tolerance: Tolerance) -> float:
    """Return the error that the share of elements which must be right does not exceed."""
    if not ratios.size:
        return 0.0
    rank = min(ratios.size, max(1, math.ceil(tolerance.share * ratios.size))) - 1
    return float(np.partition(ratios, rank, axis=None)[rank])


def _values(content: NDArray[np.uint8], part: Part) -> NDArray[Any]:
    """Return a result that lies in bytes."""
    kind = np.dtype(NAMES.get(part.dtype, part.dtype))
    strides = tuple(kind.itemsize * step for step in part.strides)
    return np.ndarray(part.shape, kind, content.data, part.offset, strides)


def _roundoff(dtype: str) -> float:
    limits: Any = ml_dtypes.finfo  # it has no types
    return float(limits(dtype).eps) / 2 if dtype.startswith(("float", "bf")) else 0.0


def _smallest(dtype: str) -> float:
    limits: Any = ml_dtypes.finfo
    is_float = dtype.startswith(("float", "bf"))
    return float(limits(dtype).smallest_subnormal) / 2 if is_float else np.finfo(float).tiny


def _chunk_means(squares: Values) -> Values:
    """Return the mean of each chunk. Infinities of right results do not count."""
    flat = np.nan_to_num(squares.ravel(), nan=0.0, posinf=0.0)
    starts = np.arange(0, max(flat.size, 1), CHUNK)
    if not flat.size:
        return np.zeros(1)
    lengths = np.diff([*starts, flat.size])
    means: Values = np.add.reduceat(flat, starts) / lengths
    return means


def _root(values: Values) -> float:
    return math.sqrt(float(np.square(values[np.isfinite(values)]).mean())) if values.size else 0.0


def _relative(error: float, size: float) -> float:
    return error / size if size and math.isfinite(size) else error


def _span(indices: NDArray[np.intp]) -> str:
    first, last = int(indices[0]), int(indices[-1])
    return f"element {first:,}" if first == last else f"elements {first:,} to {last:,}"
