"""Two tables of times become verdicts: which points are slower, which the same, which unclear.

Pure. docs/diff.md tells the rules to users.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from gpubench.analyze.shift import adjusted, least_p, log_interval, log_ratio, p_value
from gpubench.model import Status

Key = TypeVar("Key", bound=Hashable)


class Verdict(StrEnum):
    """What became of a point, gravest first."""

    BROKEN = "broken"
    """It was right; now it is wrong or fails."""

    SLOWER = "slower"
    MISSING = "missing"
    """Only the base has a time."""

    AMBIGUOUS = "ambiguous"
    """Neither shown to have moved nor shown to be the same."""

    CLOCK = "clock"
    """The time moved and the cycles did not."""

    FASTER = "faster"
    NEW = "new"
    """Only the new side has a time."""

    SAME = "same"
    """Shown to differ by less than matters."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """From where on a difference counts."""

    threshold: float = 0.02
    """Relative difference of the medians that does not matter yet."""

    floor_us: float = 0.5
    """Difference in microseconds that does not matter, however large it is relatively."""

    q: float = 0.01
    """False discovery rate over all points; 1 - q is the confidence of the intervals."""


@dataclass(frozen=True, kw_only=True)
class Side:
    """What one side knows of a point."""

    status: Status = Status.OK
    reason: str = ""
    rounds_us: tuple[float, ...] = ()
    """Round medians, of all its files."""

    cycles: tuple[float, ...] = ()
    """The same in clock cycles of the multiprocessors (time × clock); empty: no clock is known."""

    @property
    def timed(self) -> bool:
        """Whether it has a time."""
        return self.status == Status.OK and bool(self.rounds_us)

    @property
    def failed(self) -> bool:
        """Whether it was wrong or ended in an error."""
        return self.status in {Status.WRONG, Status.ERROR}

    @property
    def median_us(self) -> float | None:
        """Median of the round medians."""
        return statistics.median(self.rounds_us) if self.timed else None


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A point's verdict and what it rests on; None where a side has no time."""

    verdict: Verdict
    reason: str = ""
    """Why, where the figures do not say it."""

    base_us: float | None = None
    new_us: float | None = None
    ratio: float | None = None
    """new / base, of the medians."""

    ratio_low: float | None = None
    ratio_high: float | None = None
    """Its interval: 1 - q where a test was possible, or else the range of all pairs of rounds."""

    cycles_ratio: float | None = None
    p: float | None = None
    """None: too few rounds to test."""

    p_adjusted: float | None = None
    base_rounds: int = 0
    new_rounds: int = 0


@dataclass(frozen=True, kw_only=True)
class Comparison(Generic[Key]):
    """The verdicts on all points, and what they have in common."""

    findings: dict[Key, Finding]
    """Points that at least one side has a time of."""

    untimed: dict[Key, str]
    """Points without a time on either side, and why."""

    limits: Limits
    drift: float
    """Factor by which the machine was slower: what most points share with the BLAS."""

    untested: int
    """Points of both sides with too few rounds for the test to speak."""

    @property
    def drifted(self) -> bool:
        """Whether the machine's own shift is one that would matter."""
        return abs(math.log(self.drift)) > math.log1p(self.limits.threshold)

    @property
    def counts(self) -> Counter[Verdict]:
        """How many points of each verdict."""
        return Counter(one.verdict for one in self.findings.values())

    def of(self, verdict: Verdict) -> dict[Key, Finding]:
        """The points of a verdict, the largest change first."""
        chosen = [pair for pair in self.findings.items() if pair[1].verdict == verdict]
        chosen.sort(key=lambda pair: -abs(math.log(pair[1].ratio or 1.0)))
        return dict(chosen)


def compare(
    base: Mapping[Key, Side],
    new: Mapping[Key, Side],
    *,
    is_blas: Callable[[Key], bool],
    limits: Limits | None = None,
) -> Comparison[Key]:
    """Judge every point of either side.

    `is_blas` tells the points whose code no build changes, the vendor's: what they share with most
    others is the machine's doing.
    """
    limits = limits or Limits()
    nothing = Side(status=Status.SKIPPED, reason="not in the file")
    sides = {key: (base.get(key, nothing), new.get(key, nothing)) for key in {**base, **new}}
    both = {key: pair for key, pair in sides.items() if pair[0].timed and pair[1].timed}
    drift = _shared_drift({key: log_ratio(*_rounds(pair)) for key, pair in both.items()}, is_blas)

    effects = {key: _Effect.between(*pair, drift, limits, len(both)) for key, pair in both.items()}
    tested = [key for key, effect in effects.items() if effect.p is not None]
    p_adjusted = dict(
        zip(tested, adjusted([effects[key].p or 0.0 for key in tested]), strict=True)
    )
    findings = {}
    untimed = {}
    for key, (before, after) in sides.items():
        if key in effects:
            findings[key] = effects[key].judged(p_adjusted.get(key), limits)
        elif before.timed or after.timed:
            findings[key] = _one_sided(before, after)
        else:
            untimed[key] = _why(after if after.reason != nothing.reason else before)
    return Comparison(
        findings=findings,
        untimed=untimed,
        limits=limits,
        drift=math.exp(drift),
        untested=len(effects) - len(tested),
    )


def _rounds(pair: tuple[Side, Side]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    return pair[0].rounds_us, pair[1].rounds_us


def _shared_drift(logs: Mapping[Key, float], is_blas: Callable[[Key], bool]) -> float:
    """Log of the factor that the median point and the median BLAS point have in common."""
    blas = [log for key, log in logs.items() if is_blas(key)]
    others = [log for key, log in logs.items() if not is_blas(key)]
    if not blas or not others:
        return 0.0
    of_blas, of_others = statistics.median(blas), statistics.median(others)
    if of_blas * of_others <= 0:
        return 0.0
    return min(of_blas, of_others, key=abs)


def _one_sided(before: Side, after: Side) -> Finding:
    if after.timed:
        verdict, reason = Verdict.NEW, _why(before)
    else:
        verdict = Verdict.BROKEN if after.failed else Verdict.MISSING
        reason = _why(after)
    return Finding(
        verdict=verdict,
        reason=reason,
        base_us=before.median_us,
        new_us=after.median_us,
        base_rounds=len(before.rounds_us),
        new_rounds=len(after.rounds_us),
    )


def _why(side: Side) -> str:
    return side.reason if side.status == Status.SKIPPED else f"{side.status}: {side.reason}"


@dataclass(frozen=True, kw_only=True)
class _Effect:
    """How far a point moved. Logs of ratios, new over base."""

    before: Side
    after: Side
    log: float
    low: float
    high: float
    margin: float
    """Shifts up to this do not matter: the threshold, or the floor where that is more."""

    beside_drift: tuple[float, float, float]
    """`log`, `low` and `high` without the machine's drift."""

    p: float | None
    """None: too few rounds. Else the larger p-value of two tests: with and without the drift."""

    @classmethod
    def between(
        cls, before: Side, after: Side, drift: float, limits: Limits, points: int
    ) -> _Effect:
        base, new = before.rounds_us, after.rounds_us
        testable = least_p(len(base), len(new)) <= limits.q / points
        low, high = log_interval(base, new, limits.q if testable else None)
        log = log_ratio(base, new)
        if sorted(base) == sorted(new):  # one measurement, or measurements all alike
            low = high = log = 0.0
        shifted = [time_us * math.exp(drift) for time_us in base]
        return cls(
            before=before,
            after=after,
            log=log,
            low=min(low, log),
            high=max(high, log),
            margin=math.log1p(
                max(
                    limits.threshold,
                    limits.floor_us / min(statistics.median(base), statistics.median(new)),
                )
            ),
            beside_drift=(log - drift, min(low, log) - drift, max(high, log) - drift),
            # Both hypotheses must fall, so the larger p-value counts (intersection-union test:
            # Berger, Technometrics 24 (1982)).
            p=max(p_value(base, new), p_value(shifted, new)) if testable else None,
        )

    def judged(self, p_adjusted: float | None, limits: Limits) -> Finding:
        verdict, reason = self._verdict(p_adjusted, limits)
        return Finding(
            verdict=verdict,
            reason=reason,
            base_us=self.before.median_us,
            new_us=self.after.median_us,
            ratio=math.exp(self.log),
            ratio_low=math.exp(self.low),
            ratio_high=math.exp(self.high),
            cycles_ratio=None if self._log_cycles is None else math.exp(self._log_cycles),
            p=self.p,
            p_adjusted=p_adjusted,
            base_rounds=len(self.before.rounds_us),
            new_rounds=len(self.after.rounds_us),
        )

    def _verdict(self, p_adjusted: float | None, limits: Limits) -> tuple[Verdict, str]:
        if -self.margin <= self.low and self.high <= self.margin:
            return Verdict.SAME, ""
        if not self._moved(self.log, self.low, self.high, p_adjusted, limits):
            return Verdict.AMBIGUOUS, ""
        if self._clock_explains():
            return Verdict.CLOCK, ""
        if not self._moved(*self.beside_drift, p_adjusted, limits) or (
            (self.log > 0) != (self.beside_drift[0] > 0)
        ):
            return Verdict.AMBIGUOUS, "moved with the machine"
        return (Verdict.SLOWER if self.log > 0 else Verdict.FASTER), ""

    def _moved(
        self, log: float, low: float, high: float, p_adjusted: float | None, limits: Limits
    ) -> bool:
        """Whether a shift matters and is no chance; without a test, all pairs of rounds must say so."""
        if p_adjusted is None:
            return low > self.margin or high < -self.margin
        return p_adjusted <= limits.q and abs(log) > self.margin

    @property
    def _log_cycles(self) -> float | None:
        if not self.before.cycles or not self.after.cycles:
            return None
        return log_ratio(self.before.cycles, self.after.cycles)

    def _clock_explains(self) -> bool:
        """Whether the cycles did not move, and the clock did, by most of what the time did."""
        cycles = self._log_cycles
        if cycles is None:
            return False
        return abs(cycles) <= min(self.margin, abs(self.log) / 2)
