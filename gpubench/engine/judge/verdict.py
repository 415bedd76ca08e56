"""The only judge: `judge` takes what was observed, and returns whether it is wrong, and why.

The other modules of this package observe. No other module makes a measurement wrong.
"""

from dataclasses import dataclass, replace

import numpy as np

from gpubench.model import Measurement, Status

NAMED_WIDTHS = {8: "bfloat16", 11: "float16", 14: "float8 on tensor cores", 24: "float32"}
"""Types of sums, by their number of bits."""


@dataclass(frozen=True, kw_only=True)
class ProbeResult:
    """How many results of an exact probe differ from it (`judge.probe`)."""

    size: str
    wrong: int
    results: int


@dataclass(frozen=True, kw_only=True)
class SumWidth:
    """How many bits a kernel's sums keep (`judge.sum_width`)."""

    size: str
    bits: int | None
    """None: the sums keep at least the largest number of bits that the probe examines."""

    label: str
    """Type of the sum as the row states it."""

    needed: int
    """Bits that the sums of this precision keep."""


@dataclass(frozen=True, kw_only=True)
class ResultError:
    """The largest `relative_error` of a result, and the largest that is right."""

    error: float
    tolerance: float
    multiple: int = 0
    """How many times the right result this is, if it is wrong in no other way."""


@dataclass(frozen=True, kw_only=True)
class RoundedOperand:
    """The errors of a result that resemble those of a rounded operand (`judge.rounding`)."""

    which: str = ""
    """The operand, or empty if the errors resemble none."""

    width: str = ""
    cosine: float = 0.0


@dataclass(frozen=True, kw_only=True)
class MissingResult:
    """A result that a launch did not compute, and what it left instead."""

    left: str


@dataclass(frozen=True, kw_only=True)
class DependentTime:
    """A time per launch that depends on what the arrays held before (`judge.independence`)."""

    on: str
    """What the time depends on, such as `what the output holds`."""

    with_it: str
    time_us: float
    time_with_it_us: float


@dataclass(frozen=True, kw_only=True)
class Duration:
    """A time per launch, and the time that the device takes at least for the problem."""

    time_us: float
    least_us: float


@dataclass(frozen=True, kw_only=True)
class Rate:
    """A rate of operations, and the highest rate that is possible, measured on the device."""

    gflops: float
    highest_gflops: float
    margin: float
    """A rate above the highest rate times this margin is wrong."""


@dataclass(frozen=True, kw_only=True)
class ClockTimes:
    """Time per launch as the child reported it, and by the parent's clock at least."""

    reported_us: float
    parent_us: float
    ratio: float
    """The ratio of the two above which the reported time is wrong."""


Observed = (
    ProbeResult
    | SumWidth
    | ResultError
    | RoundedOperand
    | MissingResult
    | DependentTime
    | Duration
    | Rate
    | ClockTimes
)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Whether a measurement is wrong, and why. It is true if the measurement is right."""

    reason: str = ""
    error: float | None = None
    """The `relative_error`, if one was computed."""

    may_be_load: bool = False
    """Whether other work on the machine can cause this, too. Then it must happen again."""

    def __bool__(self) -> bool:
        return not self.reason


class WrongError(Exception):
    """A measurement is wrong. The message is the verdict's reason."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.reason)
        self.verdict = verdict


def judge(observed: Observed) -> Verdict:
    """Return the verdict on what was observed."""
    error = observed.error if isinstance(observed, ResultError) else None
    may_be_load = isinstance(observed, DependentTime | ClockTimes)
    return Verdict(reason=_reason(observed), error=error, may_be_load=may_be_load)


def _reason(observed: Observed) -> str:
    """Return why this is wrong, or nothing. The comparisons are written so that NaN is wrong."""
    reason = ""
    match observed:
        case ProbeResult(wrong=wrong) as x if wrong:
            reason = (
                f"exact probe at {x.size}: {wrong:,} of {x.results:,} results, each a single "
                "product, differ from it: an operand was rounded, or a product lost or added twice"
            )
        case SumWidth(bits=int(bits)) as x:
            as_type = f", as sums in {NAMED_WIDTHS[bits]} do" if bits in NAMED_WIDTHS else ""
            reason = (
                f"its sums at {x.size} keep {bits} bits{as_type}. The stated type is {x.label}, "
                f"and sums of this precision keep {x.needed} bits"
            )
        case ResultError() as x if not x.error <= x.tolerance:
            reason = _reason_of_error(x)
        case RoundedOperand(which=which) as x if which:
            reason = (
                f"{which} was rounded, to about {x.width}: the errors of the result are those of "
                f"such operands (cosine {x.cosine:.2f}; of right results, 0)"
            )
        case MissingResult() as x:
            reason = f"a launch did not compute its result: {x.left}"
        case DependentTime() as x:
            reason = (
                f"its time depends on {x.on}: {x.time_us:.3g} µs a launch, and "
                f"{x.time_with_it_us:.3g} µs with {x.with_it}"
            )
        case Duration() as x if not x.time_us > x.least_us:
            reason = (
                f"{x.time_us:.3g} µs a launch, and the device cannot take less than "
                f"{x.least_us:.3g}: not all was computed, or the time is wrong"
            )
        case Rate() as x if not x.gflops <= x.margin * x.highest_gflops:
            reason = (
                f"{x.gflops:.4g} GFLOP/s, but the device's multiply-adds reach "
                f"{x.highest_gflops:.4g}: not all was computed, or the time is wrong"
            )
        case ClockTimes() as x if not x.parent_us <= x.ratio * x.reported_us:
            reason = (
                f"{x.reported_us:.3g} µs a launch, but at least {x.parent_us:.3g} µs by the clock "
                "of another process"
            )
    return reason


def _reason_of_error(observed: ResultError) -> str:
    if observed.multiple:
        return (
            f"the result is {observed.multiple} times the right one: repeated launches add up, so "
            "store the result, and do not add it to what the output held"
        )
    if np.isnan(observed.error):
        return "the result holds NaN: an element was not written, or computed from garbage"
    if observed.tolerance == 0:
        return f"the result differs from the exact integer product by up to {observed.error:.0f}"
    return f"relative error {observed.error:.2g}, tolerance {observed.tolerance:.2g}"


def require(observed: Observed) -> None:
    """Raise WrongError if what was observed is wrong."""
    if not (verdict := judge(observed)):
        raise WrongError(verdict)


def as_judged(measurement: Measurement, verdict: Verdict) -> Measurement:
    """Return the measurement; without a time, and with the reason, if the verdict is wrong."""
    if verdict:
        return measurement
    error = measurement.max_relative_error if verdict.error is None else verdict.error
    return replace(
        measurement,
        status=Status.WRONG,
        reason=verdict.reason,
        max_relative_error=error,
        series=None,
    )
