"""Two tables of times become verdicts: which points are slower, which the same, which unclear.

Pure. docs/diff.md tells the rules to users.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from gpubench.commands.diff.shift import adjusted, least_p, log_interval, log_ratio, p_value
from gpubench.commands.diff.verdicts import Comparison, Finding, Key, Limits, Side, Verdict
from gpubench.model import Status

ABSENT = "not in the file"
"""Reason of points that a side lacks."""

TOO_NOISY = "the machine is too noisy for so few sweeps"
"""Reason of points on a CPU that seem to have moved."""

OTHER_GPU = "the other side's GPU is another one"
"""Reason of points whose shift two GPUs of one kind may have between them."""

ROUNDING = 1 + 1e-9
"""SciPy's p-value of complete separation may differ from ours in its last digits."""


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
    nothing = Side(status=Status.SKIPPED, reason=ABSENT)
    sides = {key: (base.get(key, nothing), new.get(key, nothing)) for key in {**base, **new}}
    both = {key: pair for key, pair in sides.items() if pair[0].timed and pair[1].timed}
    drift = _shared_drift({key: log_ratio(*_rounds(pair)) for key, pair in both.items()}, is_blas)

    effects = {key: _Effect.between(*pair, drift, limits, len(both)) for key, pair in both.items()}
    tested = [effect for effect in effects.values() if effect.p is not None]
    p_adjusted = adjusted([effect.p or 0.0 for effect in tested])
    p_beside = adjusted([effect.p_beside_drift or 0.0 for effect in tested])
    for effect, p, beside in zip(tested, p_adjusted, p_beside, strict=True):
        effect.p_adjusted, effect.p_beside_drift = p, beside
    findings = {}
    untimed = {}
    for key, (before, after) in sides.items():
        if key in effects:
            findings[key] = effects[key].judged(limits)
        elif before.timed or after.timed:
            findings[key] = _one_sided(before, after)
        else:
            untimed[key] = _why(after if after.reason != nothing.reason else before)
    on_cpu = {key: both[key] for key in both if both[key][0].on_cpu and both[key][1].on_cpu}
    if on_cpu and not all(enough_sweeps(*pair, limits.q) for pair in on_cpu.values()):
        findings |= _held_back({key: findings[key] for key in on_cpu})
    return Comparison(
        findings=findings,
        untimed=untimed,
        limits=limits,
        drift=math.exp(drift),
        untested=len(effects) - len(tested),
    )


def enough_sweeps(base: Side, new: Side, q: float) -> bool:
    """Whether the sweeps alone, each one figure, could show a shift."""
    return least_p(len(base.sweeps_us), len(new.sweeps_us)) <= q


def _held_back(findings: dict[Key, Finding]) -> dict[Key, Finding]:
    """Findings of few sweeps on a CPU: where most of what stayed cannot be shown to, none moved.

    A process's layout in memory shifts its times by ten percent or more, alike in all its rounds
    (Mytkowicz, Diwan, Hauswirth and Sweeney, ASPLOS 2009), and neighbours take their share. The
    points that did not move tell how much of that there was.
    """
    counts = Counter(one.verdict for one in findings.values())
    if counts[Verdict.AMBIGUOUS] <= counts[Verdict.SAME]:
        return findings
    return {
        key: replace(one, verdict=Verdict.AMBIGUOUS, reason=TOO_NOISY)
        if one.verdict in {Verdict.SLOWER, Verdict.FASTER}
        else one
        for key, one in findings.items()
    }


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


@dataclass(kw_only=True)
class _Effect:
    """How far a point moved. Logs of ratios, new over base."""

    before: Side
    after: Side
    log: float
    low: float
    high: float
    margin: float
    """Shifts up to this do not matter: the threshold, or the floor where that is more."""

    drift: float
    p: float | None
    """None: too few rounds for a test."""

    p_beside_drift: float | None
    """That the point moved as far as the machine did."""

    sweeps_agree: bool
    """Whether the sweeps, each one figure, differ between the sides too."""

    p_adjusted: float | None = None

    @classmethod
    def between(
        cls, before: Side, after: Side, drift: float, limits: Limits, points: int
    ) -> _Effect:
        base, new = before.rounds_us, after.rounds_us
        testable = least_p(len(base), len(new)) <= limits.q / points
        log = log_ratio(base, new)
        low, high = log_interval(base, new, limits.q if testable else None)
        if sorted(base) == sorted(new):  # one measurement, or measurements all alike
            low = high = log
        p, beside = None, None
        if testable:
            p = beside = p_value(base, new)
            if drift:  # half of it on either side, so that swapping the sides changes nothing
                beside = p_value(
                    [math.log(time_us) + drift / 2 for time_us in base],
                    [math.log(time_us) - drift / 2 for time_us in new],
                )
        # Rounds of one sweep share what its process did to them. So the sweeps must agree: by the
        # test where there are enough, or else each of one side with each of the other.
        medians = before.sweep_medians_us, after.sweep_medians_us
        attainable = least_p(*map(len, medians))
        fastest_us = min(statistics.median(base), statistics.median(new))
        return cls(
            before=before,
            after=after,
            log=log,
            low=min(low, log),
            high=max(high, log),
            margin=math.log1p(max(limits.threshold, limits.floor_us / fastest_us)),
            drift=drift,
            p=p,
            p_beside_drift=beside,
            sweeps_agree=p_value(*medians) <= max(limits.q, attainable * ROUNDING),
        )

    def judged(self, limits: Limits) -> Finding:
        verdict, reason = self._verdict(limits)
        cycles = self._log_cycles
        return Finding(
            verdict=verdict,
            reason=reason,
            base_us=self.before.median_us,
            new_us=self.after.median_us,
            ratio=math.exp(self.log),
            ratio_low=math.exp(self.low),
            ratio_high=math.exp(self.high),
            cycles_ratio=None if cycles is None else math.exp(cycles),
            p=self.p,
            p_adjusted=self.p_adjusted,
            base_rounds=len(self.before.rounds_us),
            new_rounds=len(self.after.rounds_us),
        )

    def _verdict(self, limits: Limits) -> tuple[Verdict, str]:
        if -self.margin <= self.low and self.high <= self.margin:
            return Verdict.SAME, ""
        way = self._way(0.0, self.p_adjusted, limits)
        if way == 0:
            return Verdict.AMBIGUOUS, ""
        if not self.sweeps_agree:
            return Verdict.AMBIGUOUS, "its sweeps disagree"
        if self._clock_explains():
            return Verdict.CLOCK, ""
        if machine := self._machine_explains(way, limits):
            return Verdict.AMBIGUOUS, machine
        return (Verdict.SLOWER if way > 0 else Verdict.FASTER), ""

    def _way(self, drift: float, p: float | None, limits: Limits) -> int:
        """1: slower than the drift explains, by more than chance and what matters; -1: faster.

        The whole interval must say so. Without a test that is every pair of rounds.
        """
        if p is not None and p > limits.q:
            return 0
        return (self.low - drift > self.margin) - (self.high - drift < -self.margin)

    def _machine_explains(self, way: int, limits: Limits) -> str:
        """What about the machine may have moved the point so far; empty: nothing."""
        if self._way(self.drift, self.p_beside_drift, limits) != way:
            return "moved with the machine"
        before, after = self.before.gpus, self.after.gpus
        least = self.low if way > 0 else -self.high
        if before and after and before != after and least <= math.log1p(limits.between_gpus):
            return OTHER_GPU
        return ""

    @property
    def _log_cycles(self) -> float | None:
        if not self.before.cycles or not self.after.cycles:
            return None
        return log_ratio(self.before.cycles, self.after.cycles)

    def _clock_explains(self) -> bool:
        """Whether the cycles stayed, and so the clock made up most of the shift."""
        cycles = self._log_cycles
        return cycles is not None and abs(cycles) <= min(self.margin, abs(self.log) / 2)
