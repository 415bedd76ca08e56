"""The statistics: two sides become verdicts. Pure. docs/diff.md states the rules for users.

The tests are SciPy's, loaded when the first one is made.
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache
from itertools import chain
from typing import NamedTuple

from gpubench.model import PointKey, Status

Key = PointKey
"""The key of a point: `Row.key`."""

ABSENT = "not in the file"
TOO_NOISY = "the machine is too noisy for so few sweeps"
OTHER_GPU = "the other side's GPU is another one"
"""Reasons of findings that others look for."""

ROUNDING = 1 + 1e-9
"""SciPy's p-value of complete separation may differ from ours in its last digits."""


class Verdict(StrEnum):
    """What became of a point, worst first; docs/diff.md explains each."""

    BROKEN = "broken"
    SLOWER = "slower"
    MISSING = "missing"
    AMBIGUOUS = "ambiguous"
    CLOCK = "clock"
    FASTER = "faster"
    NEW = "new"
    SAME = "same"


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How large a difference must be to count: relative, and in microseconds."""

    threshold: float = 0.02
    floor_us: float = 0.5
    q: float = 0.01
    """False discovery rate over all points; 1 - q is the confidence of the intervals."""

    between_gpus: float = 0.10
    """Relative difference that two GPUs of one kind may have at a point; docs/diff.md has the
    measurement. 0: none is allowed for."""


@dataclass(frozen=True, kw_only=True)
class PooledPoint:
    """What one side knows about a point: the rows of all its files."""

    status: Status = Status.OK
    reason: str = ""
    sweeps_us: tuple[tuple[float, ...], ...] = ()
    """Round medians of each sweep, that is, of each process that measured the point."""

    cycles: tuple[float, ...] = ()
    """All rounds in cycles of the multiprocessors (time × clock); empty: no clock is known."""

    gpus: frozenset[str] = frozenset()
    """UUIDs; empty: not known."""

    on_cpu: bool = False
    """Timed by a CPU's clock: its times shift from process to process."""

    is_blas: bool = False
    """Runs the vendor's library, the same code in every build."""

    @property
    def rounds_us(self) -> tuple[float, ...]:
        """The round medians of all sweeps."""
        return tuple(chain.from_iterable(self.sweeps_us))

    @property
    def timed(self) -> bool:
        """It has a time."""
        return self.status == Status.OK and bool(self.sweeps_us)

    @property
    def failed(self) -> bool:
        """Whether it was wrong or ended in an error."""
        return self.status in {Status.WRONG, Status.ERROR}

    @property
    def median_us(self) -> float | None:
        """Median of the round medians."""
        return statistics.median(self.rounds_us) if self.timed else None

    @property
    def why_untimed(self) -> str:
        """Why it has no time."""
        return self.reason if self.status == Status.SKIPPED else f"{self.status}: {self.reason}"


_Pair = tuple[PooledPoint, PooledPoint]
"""A point of the base and of the new side."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A point's verdict and what it rests on; None where a side has no time.

    The fields are those of the JSON format, which docs/diff.md explains.
    """

    verdict: Verdict
    reason: str = ""
    base_median_us: float | None = None
    new_median_us: float | None = None
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    cycles_ratio: float | None = None
    p: float | None = None
    p_adjusted: float | None = None
    base_rounds: int = 0
    new_rounds: int = 0


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The verdicts on all points, and what they have in common."""

    findings: dict[Key, Finding]
    """Points that at least one side has a time of."""

    limits: Limits
    untimed: dict[Key, str] = field(default_factory=dict)
    """Points without a time on either side, and why."""

    drift: float = 1.0
    """Factor by which the machine was slower: what most points share with the BLAS."""

    untested: int = 0
    """Points of both sides with too few rounds for the test."""

    @property
    def drifted(self) -> bool:
        """Whether the machine's own shift is one that would matter."""
        return abs(math.log(self.drift)) > math.log1p(self.limits.threshold)

    @property
    def counts(self) -> Counter[Verdict]:
        """The number of points of each verdict."""
        return Counter(finding.verdict for finding in self.findings.values())

    @property
    def two_sided(self) -> dict[Key, Finding]:
        """The findings on points that both sides have a time of."""
        return {key: found for key, found in self.findings.items() if found.ratio is not None}

    def of(self, verdict: Verdict) -> dict[Key, Finding]:
        """The points of a verdict, the largest change first."""
        chosen = {key: found for key, found in self.findings.items() if found.verdict == verdict}
        return dict(sorted(chosen.items(), key=lambda item: -abs(math.log(item[1].ratio or 1.0))))


# ---- the verdicts


def compare(
    base: Mapping[Key, PooledPoint], new: Mapping[Key, PooledPoint], limits: Limits | None = None
) -> Comparison:
    """Judge every point of either side."""
    limits = limits or Limits()
    absent = PooledPoint(status=Status.SKIPPED, reason=ABSENT)
    points = {key: (base.get(key, absent), new.get(key, absent)) for key in {**base, **new}}
    timed = {key: pair for key, pair in points.items() if pair[0].timed and pair[1].timed}
    drift = _shared_drift(timed.values())
    tests = _tests(timed, drift, limits.q)
    findings = {
        key: _finding(before, after, tests.get(key), drift, limits)
        for key, (before, after) in points.items()
        if before.timed or after.timed
    }
    untimed = {
        key: (before if after is absent else after).why_untimed
        for key, (before, after) in points.items()
        if key not in findings
    }
    on_cpu = {key: pair for key, pair in timed.items() if pair[0].on_cpu and pair[1].on_cpu}
    if any(least_p(len(a.sweeps_us), len(b.sweeps_us)) > limits.q for a, b in on_cpu.values()):
        findings |= _distrust({key: findings[key] for key in on_cpu})
    return Comparison(
        findings=findings,
        untimed=untimed,
        limits=limits,
        drift=math.exp(drift),
        untested=len(timed) - len(tests),
    )


def _shared_drift(points: Iterable[_Pair]) -> float:
    """Log of the factor that the median point and the median BLAS point share."""
    logs: dict[bool, list[float]] = {True: [], False: []}
    for before, after in points:
        logs[before.is_blas].append(log_ratio(before.rounds_us, after.rounds_us))
    if not all(logs.values()):
        return 0.0
    blas, others = map(statistics.median, logs.values())
    return 0.0 if blas * others <= 0 else min(blas, others, key=abs)


class _Test(NamedTuple):
    """p-values of the Mann-Whitney test of a point."""

    p: float
    p_adjusted: float
    p_without_drift: float
    """Adjusted, of the same test once the drift is taken out."""


def _tests(timed: Mapping[Key, _Pair], drift: float, q: float) -> dict[Key, _Test]:
    """The tests of all points that have enough rounds for one."""
    rounds = {key: (before.rounds_us, after.rounds_us) for key, (before, after) in timed.items()}
    rounds = {
        key: pair for key, pair in rounds.items() if least_p(*map(len, pair)) <= q / len(timed)
    }
    p = {key: p_value(*pair) for key, pair in rounds.items()}
    p_without_drift = p
    if drift:  # half of it on either side, so that swapping the sides changes nothing
        p_without_drift = {
            key: p_value(
                [math.log(time_us) + drift / 2 for time_us in base],
                [math.log(time_us) - drift / 2 for time_us in new],
            )
            for key, (base, new) in rounds.items()
        }
    p_adjusted, p_without_drift = adjusted(p), adjusted(p_without_drift)
    return {key: _Test(p[key], p_adjusted[key], p_without_drift[key]) for key in rounds}


class _Shift(NamedTuple):
    """How far a point moved: logs of ratios, new over base."""

    log: float
    low: float
    high: float
    cycles: float | None
    """None: no clock is known."""

    def direction(self, margin: float, drift: float = 0.0) -> int:
        """1 if the whole interval is above the drift by more than the margin; -1 if below it."""
        return (self.low - drift > margin) - (self.high - drift < -margin)


def _finding(
    before: PooledPoint, after: PooledPoint, test: _Test | None, drift: float, limits: Limits
) -> Finding:
    base, new = before.rounds_us, after.rounds_us
    finding = Finding(
        verdict=Verdict.NEW,
        reason=before.why_untimed,
        base_median_us=before.median_us,
        new_median_us=after.median_us,
        base_rounds=len(base),
        new_rounds=len(new),
    )
    if not after.timed:
        verdict = Verdict.BROKEN if after.failed else Verdict.MISSING
        return replace(finding, verdict=verdict, reason=after.why_untimed)
    if not before.timed:
        return finding
    log = log_ratio(base, new)
    low, high = log_interval(base, new, limits.q if test else None)
    if sorted(base) == sorted(new):  # the same measurement, or rounds that are all equal
        low = high = log
    cycles = log_ratio(before.cycles, after.cycles) if before.cycles and after.cycles else None
    shift = _Shift(log, min(low, log), max(high, log), cycles)
    verdict, reason = _verdict(before, after, shift, test, drift, limits)
    return replace(
        finding,
        verdict=verdict,
        reason=reason,
        ratio=math.exp(log),
        ratio_low=math.exp(shift.low),
        ratio_high=math.exp(shift.high),
        cycles_ratio=None if cycles is None else math.exp(cycles),
        p=test.p if test else None,
        p_adjusted=test.p_adjusted if test else None,
    )


def _verdict(  # noqa: PLR0911 # each rule of docs/diff.md returns its own verdict
    before: PooledPoint,
    after: PooledPoint,
    shift: _Shift,
    test: _Test | None,
    drift: float,
    limits: Limits,
) -> tuple[Verdict, str]:
    """The verdict on a point of both sides, and why."""
    fastest_us = min(statistics.median(before.rounds_us), statistics.median(after.rounds_us))
    margin = math.log1p(max(limits.threshold, limits.floor_us / fastest_us))
    if -margin <= shift.low and shift.high <= margin:
        return Verdict.SAME, ""
    direction = shift.direction(margin)
    if direction == 0 or (test and test.p_adjusted > limits.q):
        return Verdict.AMBIGUOUS, ""
    if not _sweeps_agree(before, after, limits.q):
        return Verdict.AMBIGUOUS, "its sweeps disagree"
    if shift.cycles is not None and abs(shift.cycles) <= min(margin, abs(shift.log) / 2):
        return Verdict.CLOCK, ""  # the cycles stayed, so most of the shift is the clock's
    if shift.direction(margin, drift) != direction or (test and test.p_without_drift > limits.q):
        return Verdict.AMBIGUOUS, "moved with the machine"
    least = shift.low if direction > 0 else -shift.high
    different_gpus = before.gpus and after.gpus and before.gpus != after.gpus
    if different_gpus and least <= math.log1p(limits.between_gpus):
        return Verdict.AMBIGUOUS, OTHER_GPU
    return (Verdict.SLOWER if direction > 0 else Verdict.FASTER), ""


def _sweeps_agree(before: PooledPoint, after: PooledPoint, q: float) -> bool:
    """Whether the medians of the sweeps differ between the sides too.

    Rounds of one sweep share what its process did to them. So the sweeps must agree: by the test
    where there are enough, otherwise each of one side with each of the other.
    """
    medians = [list(map(statistics.median, point.sweeps_us)) for point in (before, after)]
    return p_value(*medians) <= max(q, least_p(*map(len, medians)) * ROUNDING)


def _distrust(findings: dict[Key, Finding]) -> dict[Key, Finding]:
    """Corrects findings of few sweeps on a CPU: if most cannot be shown to have stayed, none moved.

    A process's layout in memory shifts its times by ten percent or more, alike in all its rounds
    (Mytkowicz, Diwan, Hauswirth and Sweeney, ASPLOS 2009), and so do other programs on the machine.
    The points that did not move show how much of that there was.
    """
    counts = Counter(finding.verdict for finding in findings.values())
    if counts[Verdict.AMBIGUOUS] <= counts[Verdict.SAME]:
        return {}
    return {
        key: replace(finding, verdict=Verdict.AMBIGUOUS, reason=TOO_NOISY)
        for key, finding in findings.items()
        if finding.verdict in {Verdict.SLOWER, Verdict.FASTER}
    }


# ---- the rank test


def p_value(base: Sequence[float], new: Sequence[float]) -> float:
    """Two-sided exact Mann-Whitney test that neither side tends to be slower.

    Mann and Whitney, Annals of Mathematical Statistics 18 (1947). The exact distribution is that
    without ties; ties narrow the true one, so they make the test conservative.
    """
    from scipy.stats import mannwhitneyu

    return float(mannwhitneyu(base, new, alternative="two-sided", method="exact").pvalue)


def least_p(base_rounds: int, new_rounds: int) -> float:
    """The smallest p-value of so many rounds: all of one side are slower than all of the other."""
    return min(1.0, 2 / math.comb(base_rounds + new_rounds, base_rounds))


def rounds_needed(points: int, q: float) -> int:
    """Rounds per side with which a single shifted point among `points` can be told from chance."""
    rounds = 1
    while least_p(rounds, rounds) > q / max(points, 1):
        rounds += 1
    return rounds


def adjusted(p_values: Mapping[Key, float]) -> dict[Key, float]:
    """p-values adjusted for the false discovery rate over all of them.

    Benjamini and Hochberg, Journal of the Royal Statistical Society B 57 (1995).
    """
    from scipy.stats import false_discovery_control

    if not p_values:
        return {}
    p_adjusted = false_discovery_control(list(p_values.values()), method="bh")
    return dict(zip(p_values, map(float, p_adjusted), strict=True))


def log_interval(
    base: Sequence[float], new: Sequence[float], level: float | None
) -> tuple[float, float]:
    """Interval of log(new / base): the factors that the Mann-Whitney test does not reject.

    `level` is the test's, 0.01 for an interval of 99 %; None gives the range of all pairs. The ends
    are two of the sorted logs of all pairs' ratios (Moses; Hollander, Wolfe and Chicken,
    Nonparametric Statistical Methods, 3rd edition, section 4.3), whatever the distribution of the
    rounds.
    """
    pairs = sorted(math.log(after) - math.log(before) for before in base for after in new)
    outside = 0 if level is None else _pairs_outside(len(base), len(new), level)
    return pairs[outside], pairs[-1 - outside]


@cache
def _pairs_outside(base_rounds: int, new_rounds: int, level: float) -> int:
    """How many pairs lie outside either end of the interval: the largest U that is rejected."""

    def p_of(u: int) -> float:
        """The p-value of two sides of which `u` pairs have the faster round on the new side."""
        full, rest = divmod(u, base_rounds)
        below = [base_rounds] * full + [rest] + [0] * new_rounds  # base rounds below each new one
        return p_value(range(base_rounds), [count - 0.5 for count in below[:new_rounds]])

    return max(bisect_right(range(base_rounds * new_rounds // 2), level, key=p_of) - 1, 0)


def log_ratio(base: Sequence[float], new: Sequence[float]) -> float:
    """log(median of new / median of base)."""
    return math.log(statistics.median(new)) - math.log(statistics.median(base))
