"""Compares the results of a launch with the right results, by the tolerance and further checks."""

import math
from collections.abc import Sequence
from types import ModuleType
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from gpubench.foreign import on_host
from gpubench.foreign.statement import Facts, Part, Tolerance
from gpubench.model import Compared

Content = Any  # bytes, or a tensor of bytes on a GPU
Values = Any  # an array of float64 elements in one dimension

OUTSIDE = 10.0
"""Maximum error of the elements that need not be within the tolerance. This maximum is a multiple
of the larger of two errors, the tolerance and the reference's largest error in its own types."""

OWN_ERRORS = 8.0
"""An error counts only above this multiple of the reference's error in its own types."""

MIN_PAIRS = 3  # minimum number of pairs of launches from which the variation is computed

ROUNDED_ONCE = 1.01  # factor on the unit roundoff of a right value that is rounded once


class _Right(NamedTuple):
    """The right values of all elements of a result."""

    part: Part
    tolerance: Tolerance
    values: Values
    own: Any  # the reference's results in its own types
    own_error: float
    """Largest error of the reference in its own types, as a multiple of the tolerance."""

    is_wide: bool  # whether the right values are the reference's results in float64
    spread: Values | None = None
    """Mean square of the right values' variation between launches, with one value for each chunk.
    None before `MIN_PAIRS` pairs of launches were compared."""

    earlier: Sequence[Values] = ()
    """The right values of the first launch, and of the previous launch."""


class Comparison:
    """Compares a workload's results, and records how the right results vary between launches."""

    def __init__(self, facts: Facts, elements: ModuleType = on_host) -> None:
        """`elements` is the module for arithmetic on the results: `on_host` or `on_device`."""
        self._facts, self.elements = facts, elements
        self._first: list[Values] = []
        self._last: list[Values] = []
        self._squares: list[Any] = [0.0 for _ in facts.outputs]
        self._pairs = 0

    def with_reference(self, native: Content, wide: Sequence[Content]) -> "WithReference":
        """Return the comparison with the right results of a launch.

        `native` has the reference's results in its own types, and `wide` has its results in
        float64. The float64 results are the right results if the native results agree with them
        within the tolerance. Otherwise, small differences have large effects, and the native
        results are the right results.
        """
        outputs, tolerances = self._facts.outputs, self._facts.tolerances
        own = [self.elements.values_of(native, part) for part in outputs]
        in_float64 = [*map(self.elements.right_values, wide)] or [None] * len(own)
        right = [
            self._right(*each) for each in zip(own, in_float64, tolerances, outputs, strict=True)
        ]
        before = [each for each in (self._first, self._last) if each]
        self._learn([each.values for each in right])
        has_spread = self._pairs >= MIN_PAIRS
        spreads = [squares / self._pairs if has_spread else None for squares in self._squares]
        results = [
            each._replace(spread=spread, earlier=[values[at] for values in before])
            for at, (each, spread) in enumerate(zip(right, spreads, strict=True))
        ]
        return WithReference(results, self.elements)

    def _right(self, own: Any, wide: Values | None, tolerance: Tolerance, part: Part) -> _Right:
        """Return `wide` as the right values if the values in `own` agree with it, or else `own`."""
        if wide is not None:
            ratios, _ = _errors(self.elements, own, wide, tolerance, part)
            if judged(ratios, tolerance, self.elements) <= 1:
                error = self.elements.largest(ratios)
                return _Right(part, tolerance, wide, own, error, is_wide=True)
        return _Right(part, tolerance, self.elements.widened(own), own, 0.0, is_wide=False)

    def _learn(self, right: list[Values]) -> None:
        """Record how this launch's right values differ from the previous launch's right values."""
        last, self._last = self._last, right
        self._first = self._first or right
        if not last:
            return
        squares = [*map(self.elements.squares_of_differences, right, last)]
        if any(each.any() for each in squares):
            self._squares = [x + y for x, y in zip(self._squares, squares, strict=True)]
            self._pairs += 1


class WithReference:
    """Compares results with the right results of a launch."""

    def __init__(self, right: Sequence[_Right], elements: ModuleType = on_host) -> None:
        self._right, self._elements = right, elements

    @property
    def is_wide(self) -> bool:
        """Whether the right results of all floating-point outputs are the float64 results."""
        return all(each.is_wide for each in self._right if _roundoff(each.part.dtype))

    def __call__(self, content: Content) -> Compared:
        """Compare the bytes of a launch's results with the right results."""
        compared = [
            self._compared(self._elements.values_of(content, each.part), each)
            for each in self._right
        ]
        return Compared(
            reason=next((each.reason for each in compared if each.reason), ""),
            judged=max(each.judged for each in compared),
            largest=max(each.largest for each in compared),
            rms=max(each.rms for each in compared),
        )

    def _compared(self, result: Any, right: _Right) -> Compared:
        elements, tolerance = self._elements, right.tolerance
        ratios, off = _errors(elements, result, right.values, tolerance, right.part, right.own)
        error = judged(ratios, tolerance, elements)
        worst = elements.largest(off)
        largest = _relative(worst, elements.magnitude(right.values))
        rms = _relative(elements.root(off), elements.root(right.values))
        reason = ""
        if not elements.has_any(result) and elements.has_any(right.values):
            reason = "the result is all zeros"
        elif elements.largest(ratios) > 1:
            reason = self._why_outside(result, ratios, error, right)
        cap = tolerance.cap
        if not reason and cap is not None and worst > cap:
            reason = f"the error of an element is {worst:.2g}, but at most {cap:g} is allowed"
        if not reason and right.spread is not None and worst:
            reason = self._why_not_computed(off, right)
        return Compared(reason, error, largest, rms)

    def _why_outside(self, result: Any, ratios: Values, error: float, right: _Right) -> str:
        """Return why a result with errors above the tolerance is wrong, or "" if it is right."""
        elements, tolerance, part = self._elements, right.tolerance, right.part
        values = elements.widened(result)
        if elements.has_nan(values) and not elements.has_nan(right.values):
            return "the result holds NaN: an element was not written, or computed as NaN"
        if not error <= 1:
            for values_of_launch in right.earlier:
                of_earlier, _ = _errors(elements, result, values_of_launch, tolerance, part)
                if judged(of_earlier, tolerance, elements) <= 1:
                    return "the result is that of an earlier launch: it was kept, and not computed"
            share = math.floor(1000 * elements.share_within(ratios)) / 10  # never 100 %
            return f"{share:g} % of the elements are right by their tolerance ({tolerance})"
        limit = OUTSIDE * max(1.0, right.own_error)
        far = ratios > limit
        if not _roundoff(part.dtype):  # integers that were rounded may differ by 1
            far &= abs(values - right.values) > 1
        count, *span = elements.span(far)
        if not count:
            return ""
        return (
            f"within their tolerance, but the error at {count:,} of {len(values):,} elements is "
            f"more than {limit:.0f} times the tolerance: {_span(*span)}"
        )

    def _why_not_computed(self, off: Values, right: _Right) -> str:
        """Return a message if errors are as large as the right values' variation, or else ""."""
        count, *span = self._elements.missed(
            off, right.values, right.own, right.spread, OWN_ERRORS, _roundoff(right.part.dtype)
        )
        if not count:
            return ""
        return (
            f"within their tolerance, but the errors of {_span(*span)} are as large as the "
            "variation of the right values between launches: not computed?"
        )


def _errors(
    elements: ModuleType,
    result: Any,
    right: Values,
    tolerance: Tolerance,
    part: Part,
    own: Any = None,
) -> tuple[Values, Values]:
    """Return each element's error divided by the allowed error, and each element's error.

    The allowed error is the tolerance plus the rounding of the right value to the result's type.
    With the reference's `own` results, errors of integers are exact.
    """
    relative = tolerance.relative + ROUNDED_ONCE * _roundoff(part.dtype)
    absolute = tolerance.absolute + _smallest(part.dtype)
    ratios, off = elements.errors(result, right, absolute, relative, own)
    return ratios, off


def judged(ratios: Values, tolerance: Tolerance, elements: ModuleType = on_host) -> float:
    """Return the largest error ratio among the fraction of elements that must be right."""
    count = len(ratios)
    if tolerance.share >= 1 or not count:
        return float(elements.largest(ratios))
    needed = min(count, max(1, math.ceil(tolerance.share * count)))
    if needed > 1 and (needed - 1) / count >= tolerance.share:  # the product was rounded up
        needed -= 1
    return float(elements.ranked(ratios, needed - 1))


def _roundoff(dtype: str) -> float:
    limits: Any = ml_dtypes.finfo  # ml_dtypes has no type annotations
    return float(limits(dtype).eps) / 2 if dtype.startswith(("float", "bf")) else 0.0


def _smallest(dtype: str) -> float:
    limits: Any = ml_dtypes.finfo
    is_float = dtype.startswith(("float", "bf"))
    return float(limits(dtype).smallest_subnormal) / 2 if is_float else np.finfo(float).tiny


def _relative(error: float, size: float) -> float:
    return error / size if size and math.isfinite(size) else error


def _span(first: int, last: int) -> str:
    return f"element {first:,}" if first == last else f"elements {first:,} to {last:,}"
