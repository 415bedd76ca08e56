"""Decides whether a measurement is wrong.

Each function `why_…` returns the reason as text, or an empty text if nothing is wrong. The other
modules of this package only observe, and do not decide. Comparisons are written so that a NaN
counts as wrong.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from gpubench.errors import ChildLostError, LacksMemoryError
from gpubench.model import Measurement, Precision, Status
from gpubench.text import digits

NAMED_WIDTHS = {8: "bfloat16", 11: "float16", 14: "float8 on tensor cores", 24: "float32"}
"""Types in which sums may be computed, by the number of bits that such sums keep."""

NOT_ALL = "not all elements were computed, or the time is wrong"


class WrongError(Exception):
    """Error for a wrong measurement. The message is the reason.

    `error` is the `relative_error`, if it was computed. `may_be_load` is true if other work on the
    machine may be the cause. Such a measurement counts as wrong only if repeated measurements are
    wrong, too.
    """

    def __init__(
        self, reason: str, error: float | None = None, *, may_be_load: bool = False
    ) -> None:
        super().__init__(reason)
        self.error, self.may_be_load = error, may_be_load


def require(reason: str, error: float | None = None, *, may_be_load: bool = False) -> None:
    """Raise WrongError with a reason, unless the reason is an empty text."""
    if reason:
        raise WrongError(reason, error, may_be_load=may_be_load)


def as_judged(measurement: Measurement, wrong: WrongError) -> Measurement:
    """Return the measurement with the status `wrong`, with the reason, and without a time."""
    error = measurement.max_relative_error if wrong.error is None else wrong.error
    return replace(
        measurement, status=Status.WRONG, reason=str(wrong), max_relative_error=error, series=None
    )


def as_lost(measurement: Measurement, lost: ChildLostError) -> Measurement:
    """Return the measurement without a time, because its process was lost.

    The status is `skipped` if memory is missing, or else `error`.
    """
    status = Status.SKIPPED if isinstance(lost, LacksMemoryError) else Status.ERROR
    return replace(measurement, status=status, reason=lost.why, series=None)


def missing(left: str) -> WrongError:
    """Return the error of a launch that did not compute its result.

    `left` is a text about what the launch left behind.
    """
    return WrongError(f"a launch did not compute its result: {left}")


def why_inexact(size: str, wrong: int, results: int, cause: str = "") -> str:
    """Return a reason if a kernel failed an exact probe (`judge.probe`).

    `wrong` is the number of elements that differ from the probe's exact result.
    """
    if not wrong:
        return ""
    cause = cause or (
        "an operand was rounded or overwritten, or a product lost or added twice: each result is a "
        "single product"
    )
    return f"exact probe at {size}: {wrong:,} of {results:,} results are wrong: {cause}"


def why_narrow(size: str, bits: int | None, precision: Precision) -> str:
    """Return a reason if the sums of a kernel keep too few bits (`judge.sum_width`).

    `bits` is the number of bits that sums keep, or None if they keep all bits that are examined.
    """
    if bits is None:
        return ""
    as_type = f", as sums in {NAMED_WIDTHS[bits]} do" if bits in NAMED_WIDTHS else ""
    return (
        f"its sums at {size} keep {bits} bits{as_type}. The stated type is "
        f"{precision.accumulator}, and sums of this precision keep {precision.sum_bits} bits"
    )


def why_inaccurate(error: float, tolerance: float, multiple: int = 0) -> str:
    """Return a reason if the `relative_error` of a result exceeds the tolerance.

    `multiple` is n if the result is n times the right result, or else 0.
    """
    if error <= tolerance:
        return ""
    if multiple:
        return (
            f"the result is {multiple} times the right one: repeated launches add up, so store the "
            "result, and do not add it to what the output held"
        )
    if math.isnan(error):
        return "the result holds NaN: an element was not written, or computed as NaN"
    if tolerance == 0:
        return f"the result differs from the exact integer product by up to {error:.0f}"
    return f"relative error {error:.2g}, tolerance {tolerance:.2g}"


def why_nan_is_lost(row_is_nan: Sequence[bool]) -> str:
    """Return a reason if a NaN in a row of A did not make the whole row of the result NaN."""
    if all(row_is_nan):
        return ""
    return "a NaN in A did not reach the result: elements were skipped, replaced, or not computed"


def why_rounded(which: str, width: str, cosine: float) -> str:
    """Return a reason if a rounded operand explains the errors of a result (`judge.rounding`)."""
    if not which:
        return ""
    return (
        f"{which} was rounded, to about {width}: the errors of the result are those of rounded "
        f"operands (cosine {cosine:.2f}; 0 for right results)"
    )


def why_dependent(on: str, time_us: float, with_it: str, time_with_it_us: float) -> str:
    """Return a reason that names the earlier contents of arrays on which a time depends."""
    other = f"{digits(time_with_it_us)} µs with {with_it}"
    return f"the time depends on {on}: {digits(time_us)} µs a launch, and {other}"


def why_too_short(time_us: float, least_us: float) -> str:
    """Return a reason if a launch did not take longer than the device's shortest possible time."""
    if time_us > least_us:
        return ""
    limit = f"the device needs at least {digits(least_us)} µs"
    return f"{digits(time_us)} µs a launch, but {limit}: {NOT_ALL}"


def why_too_fast(gflops: float, highest_gflops: float, margin: float) -> str:
    """Return a reason if a rate exceeds the highest measured rate, multiplied by a margin."""
    if gflops <= margin * highest_gflops:
        return ""
    highest = f"the device's multiply-adds reach {digits(highest_gflops, 4)}"
    return f"{digits(gflops, 4)} GFLOP/s, but {highest}: {NOT_ALL}"


def why_unconfirmed(reported_us: float, parent_us: float, ratio: float) -> str:
    """Return a reason if the parent measured more than `ratio` times the time of the child."""
    if parent_us <= ratio * reported_us:
        return ""
    elsewhere = f"at least {digits(parent_us)} µs by the clock of another process"
    return f"{digits(reported_us)} µs a launch, but {elsewhere}"
