"""Divides the shift of each point, between two sides, between the machine and the kernel."""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import compress, zip_longest
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpubench.commands.diff.findings import Key, PooledPoint
from gpubench.commands.diff.rounds import Rounds
from gpubench.stats.clock import clock_shares, clock_shift, explained
from gpubench.stats.moderated import Floats, moderate
from gpubench.stats.reference import Shift, machine_shift, shared_part

Pairs = Mapping[Key, tuple[PooledPoint, PooledPoint]]


class Shifts(NamedTuple):
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
    """Whether each point shows the shift of the machine. `_shows_machine` decides this."""


def shifts_of(pairs: Pairs, sides: Sequence[Rounds], threshold: float) -> Shifts:
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
    base, new = sides
    time = new.statistics.mean - base.statistics.mean
    clock = np.array([clock_shift(a.clock_mhz, b.clock_mhz) for a, b in pairs.values()])
    points = [point for pair in pairs.values() for point in pair]
    shares = clock_shares(
        *(
            np.array([getattr(point, name) or np.nan for point in points]).reshape(-1, 2)
            for name in ("gbytes_per_s", "percent_of_copy", "percent_of_peak")
        )
    )
    blas, references = _shows_machine(pairs), _references(pairs)
    groups = _groups(pairs)
    machine_clock = np.where(references > 0, clock, _clock_of_blas(pairs, groups, clock, blas))
    by_machine = explained(time, shared_part(clock, machine_clock), shares)
    at_clock = time + by_machine
    errors = moderate(base.statistics, new.statistics).standard_error
    level_variance, level_df = _common_level(base, new)
    drift, by_library, hides = np.zeros((3, len(time)))
    for group in groups:
        estimate = partial(
            machine_shift,
            errors=errors[group],
            blas=blas[group],
            sides=(base.logs[group], new.logs[group]),
            level=Shift(0.0, float(level_variance[group][0]), float(level_df[group][0])),
            far=threshold,
        )
        shift = estimate(at_clock[group], references=references[group])
        drift[group], level_variance[group], level_df[group] = shift.shift, shift.variance, shift.df
        by_library[group & blas] = shift.library
        # If all kernels were slower, no kernel would have the same code on both sides.
        by_blas = partial(estimate, references=np.minimum(references[group], 0))
        all_slower = at_clock[group] + ~blas[group]
        hides[group] = by_blas(all_slower).shift - by_blas(at_clock[group]).shift
    rest = time - drift - by_library
    effect, cycles = rest + by_machine, rest + explained(rest, clock, shares)
    return Shifts(
        time=time,
        clock=clock,
        by_clock=-by_machine,
        by_drift=drift,
        effect=np.where(np.abs(cycles) > np.abs(effect), cycles, effect),
        by_library=by_library,
        level_variance=level_variance,
        level_df=level_df,
        hides=hides,
        blas=blas,
    )


def _groups(pairs: Pairs) -> list[NDArray[np.bool_]]:
    """Return a mask for each group of points that share one shift of the machine.

    A group has the points of an operation on a backend.
    """
    names = [(key.op, key.backend) for key in pairs]
    return [np.array([other == name for other in names]) for name in dict.fromkeys(names)]


def _clock_of_blas(
    pairs: Pairs, groups: Sequence[NDArray[np.bool_]], clock: Floats, blas: NDArray[np.bool_]
) -> Floats:
    """Return the shift of the clock of the BLAS at each point's problem.

    At a problem without the BLAS, the shift is the median over the BLAS points of the group, or
    over all points of a group without the BLAS.
    """
    problems = [key._replace(variant="", tile="") for key in pairs]
    measured = dict(zip(compress(problems, blas), clock[blas], strict=True))
    typical = np.zeros_like(clock)
    for group in groups:
        typical[group] = np.median(clock[group & blas] if (group & blas).any() else clock[group])
    return np.array(
        [measured.get(key, other) for key, other in zip(problems, typical, strict=True)]
    )


def _references(pairs: Pairs) -> NDArray[np.int64]:
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


def _shows_machine(pairs: Pairs) -> NDArray[np.bool_]:
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


def _common_level(base: Rounds, new: Rounds) -> tuple[Floats, Floats]:
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
