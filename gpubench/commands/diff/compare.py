"""Two sides become verdicts. Pure. docs/diff.md states the rules for users."""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain, compress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpubench.model import PointKey
from gpubench.stats.moderated import (
    Floats,
    Rounds,
    adjusted,
    half_widths,
    moderate,
    p_values,
    summarize,
)

Key = PointKey
"""The key of a point: `Row.key`."""

ABSENT = "not in the file"
MODES = "its rounds have more than one mode"
OTHER_GPU = "the other side's GPU is another one"
WITH_MACHINE = "moved with the machine"
TOO_FEW_ROUNDS = "a single round a side"
TOO_FEW_SWEEPS = "a single sweep a side on a CPU"
"""Reasons of findings."""

CLOCK_REPEATS = 0.01
"""Relative difference of two clocks that says nothing: between sweeps of 405 points on an H200 the
clock of a point, read in the stream, differed by up to 0.52 %."""

SAME_MEASUREMENT = 1e-12
"""Relative difference below which both sides are the same file: that scatters, but not moved."""

NO_INTERVAL = 50.0
"""Half an interval, of logarithms, that says nothing."""

MODE_GAP = 2.0
"""Rounds have two modes if they fall into two groups so many times further apart than wide."""

DECIDING_ROUNDS = 20
"""Rounds of both sides together with which a point whose rounds have modes is judged."""


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
    """How large a difference must be to count."""

    threshold: float = 0.02
    """Relative difference that matters."""

    q: float = 0.01
    """False discovery rate over all points; 1 - q is the confidence of the intervals."""

    between_gpus: float = 0.10
    """Relative difference that two GPUs of one kind may have at a point; docs/diff.md has the
    measurement. 0: none is allowed for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PooledPoint:
    """What one side knows about a point: the rows of all its files."""

    sweeps_us: tuple[tuple[float, ...], ...] = ()
    """Round medians of each sweep that has a time of the point."""

    lost: str = ""
    """Why a sweep has no time of it: `wrong: relative error 1`."""

    clock_mhz: float | None = None
    """Of the multiprocessors while it was sampled; None: not known."""

    gpus: frozenset[str] = frozenset()
    """UUIDs; empty: not known."""

    on_cpu: bool = False
    """Timed by a CPU's clock: rounds of one sweep resemble each other more than sweeps do."""

    is_blas: bool = False
    """Runs the vendor's library, the same code in every build."""

    @property
    def rounds_us(self) -> tuple[float, ...]:
        """The round medians of all sweeps."""
        return tuple(chain.from_iterable(self.sweeps_us))

    @property
    def repeats_us(self) -> Sequence[float]:
        """What the test takes for independent: rounds; on a CPU the median of each sweep."""
        return list(map(statistics.median, self.sweeps_us)) if self.on_cpu else self.rounds_us


@dataclass(frozen=True, kw_only=True, slots=True)
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
    judged_ratio: float | None = None
    p: float | None = None
    p_adjusted: float | None = None
    base_rounds: int = 0
    new_rounds: int = 0
    modes: int = 1


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

    @property
    def untested(self) -> dict[Key, Finding]:
        """Those of them that have too few rounds, or sweeps, to be judged."""
        too_few = {TOO_FEW_ROUNDS, TOO_FEW_SWEEPS}
        return {key: found for key, found in self.findings.items() if found.reason in too_few}

    def of(self, verdict: Verdict) -> dict[Key, Finding]:
        """The points of a verdict, the largest change first."""
        chosen = {key: found for key, found in self.findings.items() if found.verdict == verdict}
        ordered = sorted(chosen.items(), key=lambda item: -abs(math.log(item[1].judged_ratio or 1)))
        return dict(ordered)


def compare(
    base: Mapping[Key, PooledPoint], new: Mapping[Key, PooledPoint], limits: Limits | None = None
) -> Comparison:
    """Judge every point of either side."""
    limits = limits or Limits()
    absent = PooledPoint(lost=ABSENT)
    renamed = _changed_modes(base, new)
    points = {renamed.get(key, key): (before, new.get(key, absent)) for key, before in base.items()}
    points |= {
        key: (points[key][0] if key in points else absent, after) for key, after in new.items()
    }
    findings: dict[Key, Finding] = {}
    untimed: dict[Key, str] = {}
    both: dict[Key, tuple[PooledPoint, PooledPoint]] = {}
    was = {after: before.compute_mode for before, after in renamed.items()}
    for key, (before, after) in points.items():
        lost = after.lost
        if key in was:
            lost = f"computes in {key.compute_mode}, the base in {was[key]}"
        if not (before.sweeps_us or after.sweeps_us):
            untimed[key] = before.lost if after is absent else after.lost
        elif not before.sweeps_us:
            findings[key] = _one_sided(Verdict.NEW, before.lost, before, after)
        elif after is absent:
            findings[key] = _one_sided(Verdict.MISSING, lost, before, after)
        elif key in was or not after.sweeps_us or (lost and not before.lost):
            findings[key] = _one_sided(Verdict.BROKEN, lost, before, after)
        else:
            both[key] = before, after
    drift = 0.0
    if both:
        judged, drift = _judge(both, limits)
        findings |= judged
    return Comparison(
        findings={key: findings[key] for key in points if key in findings},
        untimed=untimed,
        limits=limits,
        drift=math.exp(drift),
    )


def _changed_modes(
    base: Mapping[Key, PooledPoint], new: Mapping[Key, PooledPoint]
) -> dict[Key, Key]:
    """Points that only the base has, and those of the new side that differ in the mode alone."""
    alone: defaultdict[tuple[Any, ...], tuple[list[Key], list[Key]]] = defaultdict(lambda: ([], []))
    for place, (side, other) in enumerate(((base, new), (new, base))):
        for key in side.keys() - other.keys():
            alone[tuple(key._replace(compute_mode=""))][place].append(key)
    return {
        before[0]: after[0]
        for before, after in alone.values()
        if len(before) == len(after) == 1 and base[before[0]].sweeps_us
    }


def _one_sided(verdict: Verdict, reason: str, before: PooledPoint, after: PooledPoint) -> Finding:
    return Finding(verdict=verdict, reason=reason, **_medians(before, after))


def _medians(before: PooledPoint, after: PooledPoint) -> dict[str, Any]:
    base, new = before.rounds_us, after.rounds_us
    return {
        "base_median_us": statistics.median(base) if base else None,
        "new_median_us": statistics.median(new) if new else None,
        "base_rounds": len(base),
        "new_rounds": len(new),
    }


# ---- points that both sides have a time of: arrays, with an element a point

_Pairs = Mapping[Key, tuple[PooledPoint, PooledPoint]]


class _Shifts(NamedTuple):
    """By how much points moved, new over base, as logarithms."""

    time: Floats
    clock: Floats
    of_clock: Floats
    """What of `time` the machine's clock explains."""

    of_drift: Floats
    """What of the rest the machine explains: what most points share with the BLAS."""

    effect: Floats
    """What is judged: what the machine does not explain."""


def _judge(pairs: _Pairs, limits: Limits) -> tuple[dict[Key, Finding], float]:
    """The findings, and the logarithm of the machine's drift."""
    base, new = (_rounds([pair[side].repeats_us for pair in pairs.values()]) for side in (0, 1))
    variance = moderate(base, new)
    shifts = _shifts(pairs, new.mean - base.mean)
    threshold = math.log1p(limits.threshold)
    margin = np.full(len(pairs), threshold)
    margin[_on_other_gpu(pairs)] = math.log1p(max(limits.threshold, limits.between_gpus))
    p = p_values(shifts.effect, margin, variance)
    p_adjusted = adjusted(p)
    half = half_widths(variance, limits.q)
    half[np.abs(shifts.time) < SAME_MEASUREMENT] = 0
    on_cpu = np.array([before.on_cpu for before, _ in pairs.values()])  # there sweeps differ anyway
    modes = (_have_modes(base, threshold) | _have_modes(new, threshold)) & ~on_cpu
    # Modes explain a difference, unless the sides are further apart than the modes of either.
    apart = np.maximum(new.low - base.high, base.low - new.high)
    spread = np.maximum(base.high - base.low, new.high - new.low)
    open_modes = modes & (apart <= spread) & (base.number + new.number < DECIDING_ROUNDS)
    findings = {}
    for i, (key, (before, after)) in enumerate(pairs.items()):
        tested = not math.isnan(variance.df[i])
        time, effect, cycles = shifts.time[i], shifts.effect[i], shifts.time[i] + shifts.clock[i]
        stayed = abs(effect) + half[i] <= threshold
        if stayed and abs(time) + half[i] <= threshold:
            verdict, reason = Verdict.SAME, ""
        elif not tested:
            verdict, reason = Verdict.AMBIGUOUS, TOO_FEW_SWEEPS if before.on_cpu else TOO_FEW_ROUNDS
        elif open_modes[i]:
            verdict, reason = Verdict.AMBIGUOUS, MODES
        elif p_adjusted[i] <= limits.q:
            verdict, reason = Verdict.SLOWER if effect > 0 else Verdict.FASTER, ""
            if abs(effect - time) > threshold / 2:
                reason = f"{100 * math.expm1(effect):+.1f} % beyond what the machine did"
        elif stayed and abs(shifts.of_clock[i]) > abs(shifts.of_drift[i]):
            verdict, reason = Verdict.CLOCK, ""
        elif abs(shifts.of_drift[i]) > threshold / 2:
            verdict, reason = Verdict.AMBIGUOUS, WITH_MACHINE
        else:
            moved_less = margin[i] > threshold and abs(effect) - half[i] > threshold
            verdict, reason = Verdict.AMBIGUOUS, OTHER_GPU if moved_less else ""
        has_interval = half[i] < NO_INTERVAL  # nor is NaN
        findings[key] = Finding(
            verdict=verdict,
            reason=reason,
            **_medians(before, after),
            ratio=math.exp(time),
            ratio_low=math.exp(time - half[i]) if has_interval else None,
            ratio_high=math.exp(time + half[i]) if has_interval else None,
            cycles_ratio=math.exp(cycles) if before.clock_mhz and after.clock_mhz else None,
            judged_ratio=math.exp(effect),
            p=float(p[i]) if tested else None,
            p_adjusted=float(p_adjusted[i]) if tested else None,
            modes=1 + int(modes[i]),
        )
    blas = np.array([before.is_blas for before, _ in pairs.values()])
    return findings, _shared_median(shifts.time, blas)


def _rounds(of_points: Sequence[Sequence[float]]) -> Rounds:
    counts = np.fromiter(map(len, of_points), np.int64)
    return summarize(np.log(np.fromiter(chain.from_iterable(of_points), float)), counts)


def _have_modes(rounds: Rounds, threshold: float) -> NDArray[np.bool_]:
    return (rounds.gap > threshold) & (rounds.gap > MODE_GAP * rounds.group)


def _on_other_gpu(pairs: _Pairs) -> list[bool]:
    return [bool(a.gpus and b.gpus and a.gpus != b.gpus) for a, b in pairs.values()]


def _shifts(pairs: _Pairs, time: Floats) -> _Shifts:
    """Divides each point's shift between the machine and the build.

    A clock that fell is the machine's as far as the clock of the BLAS fell too, at the same problem
    if it is there; what a kernel lowers alone is its own doing. A clock that rose explains nothing:
    a time that stayed has more cycles then. So that base and new can be swapped, what is judged is
    the larger of time, at the machine's clock, and cycles.
    """
    clock = np.array([_clock_shift(*pair) for pair in pairs.values()])
    blas = np.array([before.is_blas for before, _ in pairs.values()])
    problems = [key._replace(variant="", tile="") for key in pairs]
    of_blas = dict(zip(compress(problems, blas), clock[blas], strict=True))
    of_machine, drift = np.zeros_like(time), np.zeros_like(time)
    groups = [(key.op, key.backend) for key in pairs]
    for group in dict.fromkeys(groups):
        inside = np.array([of_point == group for of_point in groups])
        typical = np.median(clock[inside & blas] if (inside & blas).any() else clock[inside])
        shared = np.array([of_blas.get(problem, typical) for problem in problems])
        of_machine[inside] = _shared(clock, shared)[inside]
        at_clock = (time + of_machine)[inside]
        drift[inside] = _shared_median(at_clock, blas[inside])
    effect = time + of_machine - drift
    cycles = time + clock - drift
    effect = np.where(np.abs(cycles) > np.abs(effect), cycles, effect)
    return _Shifts(time, clock, -of_machine, drift, effect)


def _clock_shift(before: PooledPoint, after: PooledPoint) -> float:
    if not (before.clock_mhz and after.clock_mhz):
        return 0.0
    shift = math.log(after.clock_mhz / before.clock_mhz)
    return shift if abs(shift) > CLOCK_REPEATS else 0.0


def _shared(one: Any, other: Any) -> Any:
    """What two shifts have in common: the smaller one, if they have the same direction."""
    smaller = np.where(np.abs(one) < np.abs(other), one, other)
    return np.where(one * other > 0, smaller, 0.0)


def _shared_median(shifts: Floats, blas: NDArray[np.bool_]) -> float:
    """What the median point has in common with the median BLAS point; 0 if one is not there."""
    if blas.all() or not blas.any():
        return 0.0
    return float(_shared(np.median(shifts[blas]), np.median(shifts[~blas])))
