"""Judges two sides of a comparison by pure functions. docs/diff.md states the rules for users."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain, compress, count, zip_longest
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpubench.commands.diff.findings import (
    ABSENT,
    Cause,
    Comparison,
    DiffVerdict,
    Disturbance,
    Finding,
    Key,
    Limits,
    PooledPoint,
)
from gpubench.grouping import grouped
from gpubench.stats.clock import clock_shares, clock_shift, explained
from gpubench.stats.detectable import smallest
from gpubench.stats.moderated import (
    Floats,
    RoundStatistics,
    Variance,
    adjusted,
    half_widths,
    moderate,
    p_values,
    summarize,
)
from gpubench.stats.modes import Modes, find_modes, hidden_steps, may_be_modes
from gpubench.stats.polish import polish
from gpubench.stats.reference import Shift, machine_shift, shared_median, shared_part
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

DISTURBED = 3.0
"""A round is disturbed if its effect on all points exceeds the threshold, and also exceeds the
scatter of the effects of all rounds by this factor."""


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

_Pairs = Mapping[Key, tuple[PooledPoint, PooledPoint]]


class _Repeats(NamedTuple):
    """The rounds of one side, without the effect that each round had on all points."""

    rounds: RoundStatistics
    logs: Floats
    """Logarithms of the times, of shape (points, rounds). NaN stands for a missing time."""

    set_aside: Floats
    """Logarithms of the times in the rounds that were left out, of shape (points, rounds)."""

    level_variance: Floats
    """Variance of the level that all points share. The array has one element for each point."""

    level_df: Floats
    """Degrees of freedom of `level_variance`. 0 means that they are unknown, because there is a
    single round."""

    level_rounds: Floats
    """Number of rounds that were not left out."""

    disturbances: list[Disturbance]


class _Shifts(NamedTuple):
    """Shifts of the points. A shift is the logarithm of the new value divided by the base value."""

    time: Floats
    clock: Floats
    by_clock: Floats
    """The part of the shift `time` that comes from the change of the machine's clock."""

    by_drift: Floats
    """The part of the remaining shift that the machine explains. Most points share this part with
    the BLAS."""

    effect: Floats
    """The part of the shift that the machine does not explain. This part is judged."""

    by_library: Floats
    """Additional shift of the BLAS that kernels with unchanged code do not have."""

    level_variance: Floats
    """Variance of the machine's shift. It adds to the variance of every point's effect."""

    level_df: Floats

    hides: Floats
    """Additional shift that would be attributed to the machine if all points except the BLAS were
    slower."""

    blas: NDArray[np.bool_]
    """Whether each point shows the shift of the machine. `_show_machine` decides this."""


class _Tests(NamedTuple):
    """The statistics from which the verdict on each point follows."""

    sides: tuple[RoundStatistics, RoundStatistics]
    shifts: _Shifts
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


def _judge(pairs: _Pairs, limits: Limits) -> Comparison:
    """Judge the points that have a time on both sides, and return the comparison."""
    threshold = math.log1p(limits.threshold)
    sides = [
        _repeats([pair[place] for pair in pairs.values()], name, threshold)
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


def _show_machine(pairs: _Pairs) -> NDArray[np.bool_]:
    """Return for each point whether the point shows the machine's shift.

    Points that run a vendor's BLAS show this shift. No point on a CPU shows the shift if the sweeps
    of both sides were measured in turns. A drift then favours neither side. Subtracting the shift
    of few points would only add the error of this shift.
    """
    return np.array(
        [
            before.is_blas and not (before.on_cpu and in_turns(before.started, after.started))
            for before, after in pairs.values()
        ]
    )


def in_turns(base: Sequence[str], new: Sequence[str]) -> bool:
    """Return whether the sides' sweeps began alternately, with one sweep of each side per pair."""
    starts = sorted([(start, 0) for start in base] + [(start, 1) for start in new])
    sides = [side for _, side in starts]
    return bool(base and new) and all(a != b for a, b in zip_longest(sides[::2], sides[1::2]))


def _tests(pairs: _Pairs, sides: Sequence[_Repeats], limits: Limits) -> _Tests:
    threshold = math.log1p(limits.threshold)
    base, new = (side.rounds for side in sides)
    shifts = _shifts(pairs, new.mean - base.mean, sides, threshold)
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


# ---- rounds, without what disturbed all points


def _repeats(points: Sequence[PooledPoint], side: str, threshold: float) -> _Repeats:
    """Return the rounds of a side without the effect that each round had on all points.

    The effects on points of a GPU and on points of a CPU are computed separately.
    """
    on_cpu = np.array([point.on_cpu for point in points])
    parts, aside = list[Floats](), list[Floats]()
    variance, df, number = np.zeros((3, len(points)))
    disturbances: list[Disturbance] = []
    for kind in (False, True):
        members = np.flatnonzero(on_cpu == kind)
        if not len(members):
            continue
        logs, columns = _table([points[i] for i in members.tolist()])
        result = polish(logs)
        variance[members], df[members] = result.level.standard_error**2, result.level.df
        number[members] = (~result.left_out).sum()
        far = np.abs(result.effects) > max(threshold, DISTURBED * result.scatter)
        disturbances += [
            Disturbance(
                side=side,
                file=file,
                round=0 if kind else number + 1,
                ratio=math.exp(result.effects[place]),
                left_out=bool(result.left_out[place]),
            )
            for place, (file, number) in enumerate(columns)
            if far[place] or result.left_out[place]
        ]
        for kept, logs in ((parts, result.logs), (aside, result.set_aside)):
            kept.append(np.full((len(points), len(columns)), np.nan))
            kept[-1][members] = logs
    logs = np.hstack(parts)
    return _Repeats(summarize(logs), logs, np.hstack(aside), variance, df, number, disturbances)


def _table(points: Sequence[PooledPoint]) -> tuple[Floats, list[tuple[int, int]]]:
    """Return logarithms of times, of shape (points, rounds), and the file and round of each column.

    A missing time is NaN. Rounds are counted from 0.
    """
    times_us = [
        {
            (file, number): time_us
            for file, times in zip(point.files or count(), point.repeats_us, strict=False)
            for number, time_us in enumerate(times)
        }
        for point in points
    ]
    columns = sorted(set().union(*times_us))
    return np.log([[times.get(each, np.nan) for each in columns] for times in times_us]), columns


def _common_level(base: _Repeats, new: _Repeats) -> tuple[Floats, Floats]:
    """Return the variance of the difference between the sides' levels, and its degrees of freedom.

    For a side with a single round, the scatter of the other side's rounds is used.
    """
    total, by_df = np.zeros((2, len(base.level_variance)))
    for side, other in ((base, new), (new, base)):
        single = side.level_df == 0
        from_other = other.level_variance * other.level_rounds / np.maximum(side.level_rounds, 1)
        variance = np.where(single, from_other, side.level_variance)
        total += variance
        by_df += variance**2 / np.maximum(np.where(single, other.level_df, side.level_df), 1e-9)
    return total, np.divide(total**2, by_df, out=np.full_like(total, np.inf), where=by_df > 0)


# ---- what the machine explains


def _shifts(pairs: _Pairs, time: Floats, sides: Sequence[_Repeats], threshold: float) -> _Shifts:
    """Divide each point's shift between the machine and the build.

    A fall of the clock is attributed to the machine as far as the clock of the BLAS fell, too. If
    the BLAS was measured at the point's problem, the clock of the BLAS at this problem is used. The
    rest of the fall is attributed to the kernel. A rise of the clock explains nothing: an unchanged
    time then has more cycles. The clock explains a change only as far as the point's time depends
    on the clock. `clock_shares` returns a range of shares; the share that explains most is used.
    Two shifts are computed: the shift of the time at the machine's clock, and the shift of the
    number of cycles. The larger shift is judged, so that the rule also holds if base and new are
    swapped.
    """
    clock = np.array([clock_shift(a.clock_mhz, b.clock_mhz) for a, b in pairs.values()])
    points = [point for pair in pairs.values() for point in pair]
    shares = clock_shares(
        *(
            np.array([getattr(point, name) or np.nan for point in points]).reshape(-1, 2)
            for name in ("gbytes_per_s", "percent_of_copy", "percent_of_peak")
        )
    )
    blas, references = _show_machine(pairs), _references(pairs)
    problems = [key._replace(variant="", tile="") for key in pairs]
    blas_clocks = dict(zip(compress(problems, blas), clock[blas], strict=True))
    by_machine, drift, by_library, hides = np.zeros((4, len(time)))
    level_variance, level_df = _common_level(*sides)
    errors = moderate(sides[0].rounds, sides[1].rounds).standard_error
    groups = [(key.op, key.backend) for key in pairs]
    for group in dict.fromkeys(groups):
        inside = np.array([other == group for other in groups])
        typical = np.median(clock[inside & blas] if (inside & blas).any() else clock[inside])
        shared = np.array([blas_clocks.get(problem, typical) for problem in problems])
        shared = np.where(references > 0, clock, shared)
        by_machine[inside] = explained(time, shared_part(clock, shared), shares)[inside]
        at_clock = (time + by_machine)[inside]
        members = inside & blas
        level = Shift(0.0, *(float(values[inside][0]) for values in (level_variance, level_df)))
        logs = sides[0].logs[inside], sides[1].logs[inside]
        voters = references[inside]
        of_points = errors[inside], blas[inside]
        shift = machine_shift(at_clock, *of_points, voters, logs, level, threshold)
        drift[inside], level_variance[inside], level_df[inside], _ = shift
        by_library[members] = shift.library
        # If all kernels were slower, no kernel would have the same code on both sides.
        all_slower, as_it_is = (
            machine_shift(each, *of_points, np.minimum(voters, 0), logs, level, threshold).shift
            for each in (at_clock + ~blas[inside], at_clock)
        )
        hides[inside] = all_slower - as_it_is
    rest = time - drift - by_library
    effect, cycles = rest + by_machine, rest + explained(rest, clock, shares)
    effect = np.where(np.abs(cycles) > np.abs(effect), cycles, effect)
    shared_variance = level_variance, level_df
    return _Shifts(
        time, clock, -by_machine, drift, effect, by_library, *shared_variance, hides, blas
    )


def _references(pairs: _Pairs) -> NDArray[np.int64]:
    """Return a number for each point. 0 is for a BLAS, and -1 is for a kernel whose code changed.

    A kernel with unchanged code has the number of the kernel, counted from 1.

    A BLAS whose versions differ between the two sides has -1. Points on a CPU have -1, because
    other programs slow a BLAS on all cores more than they slow kernels on fewer cores.
    """
    names = list(dict.fromkeys(key.variant for key in pairs))

    def reference(key: Key, base: PooledPoint, new: PooledPoint) -> int:
        if base.on_cpu:
            return -1
        if base.is_blas:
            return 0 if base.library == new.library else -1
        return 1 + names.index(key.variant) if base.code and base.code == new.code else -1

    return np.array([reference(key, *pair) for key, pair in pairs.items()])
