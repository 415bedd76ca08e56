"""Judges two sides of a comparison by pure functions. docs/diff.md states the rules for users."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpubench.commands.diff.findings import (
    ABSENT,
    Cause,
    Comparison,
    DiffVerdict,
    Finding,
    Key,
    Limits,
    PooledPoint,
)
from gpubench.commands.diff.rounds import Rounds, without_disturbances
from gpubench.commands.diff.shifts import Pairs, Shifts, shifts_of
from gpubench.grouping import grouped
from gpubench.stats.detectable import smallest
from gpubench.stats.moderated import (
    Floats,
    RoundStatistics,
    Variance,
    adjusted,
    half_widths,
    moderate,
    p_values,
)
from gpubench.stats.modes import Modes, find_modes, hidden_steps, may_be_modes
from gpubench.stats.reference import shared_median
from gpubench.stats.shortest import decide_by_shortest
from gpubench.view.numbers import milliseconds

SAME_MEASUREMENT = 1e-12
"""Relative difference below which two results count as the same measurement."""

NO_INTERVAL = 3.0
"""An interval is shown only if its half-width, as a logarithm, is below this value. A half-width of
3.0 is a factor of 20."""

MIN_SWEEPS = 5
"""On a CPU, the sweeps' shortest times are also compared if each side has at least this number of
sweeps."""


def compare(
    base: Mapping[Key, PooledPoint], new: Mapping[Key, PooledPoint], limits: Limits | None = None
) -> Comparison:
    """Judge every point that at least one side has."""
    limits = limits or Limits()
    absent = PooledPoint(lost=ABSENT)
    renamed = _changed_modes(base, new)
    base = {renamed.get(key, key): point for key, point in base.items()}
    new = dict(new) | {
        after: PooledPoint(
            lost=f"computes in {after.compute_mode}, on the base side in {key.compute_mode}"
        )
        for key, after in renamed.items()
    }
    findings: dict[Key, Finding] = {}
    untimed: dict[Key, str] = {}
    both: dict[Key, tuple[PooledPoint, PooledPoint]] = {}
    for key in base | new:
        before, after = base.get(key, absent), new.get(key, absent)
        if not (before.sweeps_us or after.sweeps_us):
            untimed[key] = before.lost if after is absent else after.lost
        elif not before.sweeps_us:
            findings[key] = _one_sided(DiffVerdict.NEW, before.lost, before, after)
        elif after is absent:
            findings[key] = _one_sided(DiffVerdict.MISSING, after.lost, before, after)
        elif not after.sweeps_us or (after.lost and not before.lost):
            findings[key] = _one_sided(DiffVerdict.BROKEN, after.lost, before, after)
        else:
            both[key] = before, after
    judged = _judge(both, limits) if both else Comparison(findings={}, limits=limits)
    findings |= judged.findings
    in_order = {key: findings[key] for key in base | new if key in findings}
    return replace(judged, findings=in_order, untimed=untimed)


def _changed_modes(
    base: Mapping[Key, PooledPoint], new: Mapping[Key, PooledPoint]
) -> dict[Key, Key]:
    """Map each base point whose compute mode changed to the new point that replaces it."""
    before, after = (
        grouped(side.keys() - other.keys(), lambda key: key._replace(compute_mode=""))
        for side, other in ((base, new), (new, base))
    )
    return {
        keys[0]: after[mode][0]
        for mode, keys in before.items()
        if len(keys) == len(after.get(mode, ())) == 1 and base[keys[0]].sweeps_us
    }


def _one_sided(
    verdict: DiffVerdict, reason: str, before: PooledPoint, after: PooledPoint
) -> Finding:
    return Finding(verdict=verdict, reason=reason, **_medians(before, after))


def _medians(before: PooledPoint, after: PooledPoint) -> dict[str, Any]:
    base, new = before.rounds_us, after.rounds_us
    return {
        "base_median_us": statistics.median(base) if base else None,
        "new_median_us": statistics.median(new) if new else None,
        "base_rounds": len(base),
        "new_rounds": len(new),
    }


# ---- points that have a time on both sides: arrays with an element for each point


class _Tests(NamedTuple):
    """The statistics from which the verdict on each point follows."""

    sides: tuple[RoundStatistics, RoundStatistics]
    shifts: Shifts
    variance: Variance
    margin: Floats
    """Logarithm of the difference that matters. The margin is larger if the two sides have
    different GPUs."""

    p: Floats
    p_adjusted: Floats
    significant: NDArray[np.bool_]
    half: Floats  # half-width of the interval of the ratio, as a logarithm
    by_shortest: NDArray[np.bool_]  # whether the sweeps' shortest times decide, not all times
    modes: Modes
    like_modes: NDArray[np.bool_]
    """Whether the change may be a switch between two speeds, such as other points have."""


def _judge(pairs: Pairs, limits: Limits) -> Comparison:
    """Judge the points that have a time on both sides, and return the comparison."""
    threshold = math.log1p(limits.threshold)
    sides = [
        without_disturbances([pair[place] for pair in pairs.values()], name, threshold)
        for place, name in enumerate(("base", "new"))
    ]
    tests = _tests(pairs, sides, limits)
    shifts = tests.shifts
    detectable = smallest(
        [None if before.is_blas else key.variant for key, (before, _) in pairs.items()],
        np.where(tests.p_adjusted <= limits.q, tests.variance.standard_error, shifts.effect),
        tests.variance,
        tests.margin,
        limits.q,
        tests.modes,
        hidden_steps(tests.sides, tests.modes, limits.q),
        float(np.median(shifts.hides)),
    )
    drifts = float(np.median(shifts.by_drift)), shared_median(shifts.time, shifts.blas)
    return Comparison(
        findings={
            key: _finding(tests, i, *pair, threshold) for i, (key, pair) in enumerate(pairs.items())
        },
        limits=limits,
        drift=math.exp(max(drifts, key=abs)),
        disturbances=tuple(chain.from_iterable(side.disturbances for side in sides)),
        detectable=detectable,
    )


def _tests(pairs: Pairs, sides: Sequence[Rounds], limits: Limits) -> _Tests:
    threshold = math.log1p(limits.threshold)
    base, new = (side.statistics for side in sides)
    shifts = shifts_of(pairs, sides, threshold)
    variance = moderate(base, new, shifts.level_variance, shifts.level_df)
    margin = np.full(len(pairs), threshold)
    other_gpu = [bool(a.gpus and b.gpus and a.gpus != b.gpus) for a, b in pairs.values()]
    margin[other_gpu] = math.log1p(max(limits.threshold, limits.between_gpus))
    p = p_values(shifts.effect, margin, variance)
    shortest = [
        (before.shortest_us, after.shortest_us)
        if min(len(before.shortest_us), len(after.shortest_us)) >= MIN_SWEEPS
        else None
        for before, after in pairs.values()
    ]
    by_shortest = decide_by_shortest(shortest, shifts.blas, margin, p, shifts.effect)
    half = half_widths(variance, limits.q)
    half[np.abs(shifts.time) < SAME_MEASUREMENT] = 0
    modes = find_modes(
        (base, new),
        (sides[0].logs, sides[1].logs),
        (sides[0].set_aside, sides[1].set_aside),
        # No modes are sought on a CPU, where sweeps differ for other reasons.
        np.array([np.inf if before.on_cpu else threshold for before, _ in pairs.values()]),
    )
    p_adjusted = adjusted(p)
    significant = (p_adjusted <= limits.q) & ~modes.explain
    return _Tests(
        sides=(base, new),
        shifts=shifts,
        variance=variance,
        margin=margin,
        p=p,
        p_adjusted=p_adjusted,
        significant=significant,
        half=half,
        by_shortest=by_shortest,
        modes=modes,
        like_modes=may_be_modes(shifts.effect, significant, (base, new), modes, limits.q),
    )


def _finding(
    tests: _Tests, i: int, before: PooledPoint, after: PooledPoint, threshold: float
) -> Finding:
    """Return the verdict on point number `i`, and the figures behind the verdict."""
    verdict, cause, reasons = _verdict(tests, i, threshold), None, list[str]()
    if i in tests.modes.speeds:
        fast, slow = (milliseconds(math.exp(log)) for log in tests.modes.speeds[i][:2])
        reasons.append(f"two speeds: {fast} and {slow} ms")
    if verdict in {DiffVerdict.SLOWER, DiffVerdict.FASTER}:
        reasons.append(_why_moved(tests, i, threshold))
    elif verdict == DiffVerdict.AMBIGUOUS:
        cause = _cause(tests, i, threshold, on_cpu=before.on_cpu)
        reasons.append(cause or "")
    time, half, was_tested = tests.shifts.time[i], tests.half[i], _was_tested(tests, i)
    has_interval = half < NO_INTERVAL  # False for NaN
    has_clocks = before.clock_mhz and after.clock_mhz
    return Finding(
        verdict=verdict,
        reason=", ".join(filter(None, reasons)),
        cause=cause,
        **_medians(before, after),
        base_us=math.exp(tests.sides[0].mean[i]),
        new_us=math.exp(tests.sides[1].mean[i]),
        ratio=math.exp(time),
        ratio_low=math.exp(time - half) if has_interval else None,
        ratio_high=math.exp(time + half) if has_interval else None,
        cycles_ratio=math.exp(time + tests.shifts.clock[i]) if has_clocks else None,
        judged_ratio=math.exp(tests.shifts.effect[i]),
        p=float(tests.p[i]) if was_tested else None,
        p_adjusted=float(tests.p_adjusted[i]) if was_tested else None,
        modes=1 + (i in tests.modes.speeds),
    )


def _was_tested(tests: _Tests, i: int) -> bool:
    return not math.isnan(tests.variance.df[i])


def _verdict(tests: _Tests, i: int, threshold: float) -> DiffVerdict:
    shifts, half = tests.shifts, tests.half[i]
    stayed = abs(shifts.effect[i]) + half <= threshold
    stayed &= i not in tests.modes.speeds or not half
    if stayed and abs(shifts.time[i]) + half <= threshold:
        return DiffVerdict.SAME
    if not _was_tested(tests, i) or tests.like_modes[i]:
        return DiffVerdict.AMBIGUOUS
    if tests.significant[i]:
        return DiffVerdict.SLOWER if shifts.effect[i] > 0 else DiffVerdict.FASTER
    is_clocks = stayed and abs(shifts.by_clock[i]) > abs(shifts.by_drift[i])
    return DiffVerdict.CLOCK if is_clocks else DiffVerdict.AMBIGUOUS


def _why_moved(tests: _Tests, i: int, threshold: float) -> str:
    """Return a remark on a slower or faster point, if the ratio of the times does not show why."""
    time, effect = tests.shifts.time[i], tests.shifts.effect[i]
    if tests.by_shortest[i]:
        return "by the fastest sweeps"
    if abs(effect - time) > threshold / 2:
        return f"{100 * math.expm1(effect):+.1f} % beyond the machine's shift"
    return ""


def _cause(tests: _Tests, i: int, threshold: float, *, on_cpu: bool) -> Cause | None:
    """Return why a point is ambiguous, or None if the point's times are the only reason."""
    shifts = tests.shifts
    moved = Cause.LIBRARY_MOVED if shifts.by_library[i] else Cause.MACHINE_MOVED
    is_beyond = tests.margin[i] > threshold and abs(shifts.effect[i]) - tests.half[i] > threshold
    causes = {
        Cause.TOO_FEW_SWEEPS if on_cpu else Cause.TOO_FEW_ROUNDS: not _was_tested(tests, i),
        Cause.LIKE_MODES: tests.like_modes[i],
        moved: abs(shifts.by_drift[i] + shifts.by_library[i]) > threshold / 2,
        Cause.OTHER_GPU: is_beyond,
    }
    return next((cause for cause, holds in causes.items() if holds), None)
