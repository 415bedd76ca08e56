"""Judge which devices are slow, compared with other devices and with their own earlier runs.

The functions are pure, and work on arrays. docs/fleet.md states the rules for users, and the
smallest slowdowns that the rules find.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from gpubench.stats.intervals import MAD_TO_SIGMA
from gpubench.stats.moderated import (
    Floats,
    RoundStatistics,
    adjusted,
    moderate,
    p_values,
    summarize,
)
from gpubench.stats.polish import row_medians

MIN_OTHERS = 3
"""Minimum number of other devices whose spread shows how much good devices differ. With fewer other
devices, good devices may differ by `BETWEEN`."""

SMALL_FLEET = 15
"""Up to this number of other devices, the spread is the standard deviation of their times. Beyond
this number, the spread is their median absolute deviation (MAD), which slow devices do not
widen."""

MIN_HIDDEN = 2
"""The limit by the MAD is used if at least this number of devices exceed it. Slow devices widen the
standard deviation of the other devices, and so hide one another. Slow devices do not widen the MAD.
Several good devices rarely exceed the limit by the MAD at once. In simulated fleets of 8 to 16 good
devices, whose times follow Student's t with 3 degrees of freedom, the rule increases the number of
fleets with a false alarm by at most a tenth."""

TWO_GROUPS = 2.0
"""Devices form two groups if the gap between the groups exceeds the threshold, and also exceeds the
width of either group by this factor."""

DISTURBED = 3.0
"""Maximum distance of a round from the median of its device's rounds, in standard deviations of a
typical device's rounds. A round that is further away is moved to this distance."""

TAILS = {
    3: (1.38, 1.95),
    4: (1.24, 2.49),
    5: (1.16, 2.77),
    6: (1.08, 2.91),
    7: (0.994, 2.91),
    9: (0.908, 2.92),
    11: (0.874, 2.99),
    15: (0.863, 3.15),
    16: (1.04, 2.84),
    31: (0.924, 2.87),
    63: (0.972, 3.04),
    1023: (0.882, 3.00),
}
"""Maps the number of other devices to a scale and degrees of freedom. The distance of a good device
from the median of the other devices, in units of their spread, is the scale times Student's t. The
times of good devices are assumed to follow Student's t with 3 degrees of freedom, which has heavy
tails. Normally distributed times exceed a distance less often. `fleet_power.py --calibrate` of
commit `a7eef527df57` made the table. The last entry also holds for larger numbers of devices."""

TAME_VALUES = 1000  # minimum number of values for judging the tails
TAME_QUANTILE = 0.98
TAME_TAIL = 2.6
"""Devices count as normally distributed if a fraction of `TAME_QUANTILE` of their distances from
the median is below this number of spreads. This quantile is 2.3 for a normal distribution,
3.1 for Student's t with 5 degrees of freedom, and 4.0 for Student's t with 3. Among fleets of 64
devices, three of four normally distributed fleets pass this test. One of a hundred fleets that
follow Student's t with 5 degrees of freedom passes it."""

MAD_TAILS = {
    7: (1.55, 2.51),
    8: (1.42, 2.77),
    9: (1.38, 2.75),
    11: (1.21, 2.75),
    13: (1.19, 2.89),
    15: (1.17, 2.98),
}
"""Maps the number of other devices to a scale and degrees of freedom, if the spread is the MAD. The
MAD of fewer than seven devices is too inaccurate."""

NORMAL = 1.25, 1e6
"""Scale and degrees of freedom if the devices' times follow a normal distribution. The scale
exceeds 1, because the median and the spread of 16 or more devices have errors of their own."""

MISSED = 0.10  # probability that a device with the smallest detectable slowdown is not called slow


THRESHOLD = 0.03  # default of the relative difference that matters
FAMILY_WISE = 0.05  # probability that any good device is called slow, over all devices and units
FALSE_DISCOVERY = 0.01  # false discovery rate among all comparisons with earlier runs
BETWEEN = 0.10
"""Relative difference that two good devices of a kind may have, if there are too few devices to
estimate this difference (docs/decisions/0015)."""


class Judgement(NamedTuple):
    """Arrays of shape (devices, units). NaN and False stand for missing times."""

    effect: Floats  # logarithm of a device's time relative to the other devices' median
    p: Floats  # p-value of the effect, times the number of comparisons
    slow: NDArray[np.bool_]
    ambiguous: NDArray[np.bool_]  # the effect exceeds the threshold, but not the limit
    no_majority: NDArray[np.bool_]  # ambiguous because half of the devices are slow
    detectable: Floats
    """Logarithm of the smallest slowdown in each unit that is found with probability 1 - `MISSED`.
    Before the slowdown, the device is assumed to be as fast as the other devices. The logarithm is
    NaN if there is no other device."""

    since: Floats  # logarithm of a device's time relative to its earlier time, or NaN
    slower_than_before: NDArray[np.bool_]


def judge(
    times: Floats,
    earlier: Floats | None = None,
    threshold: float = THRESHOLD,
    processes: Sequence[int] | None = None,
) -> Judgement:
    """Judge logarithms of times, of shape (devices, units, rounds). NaN means no time.

    Any device, unit or round may have no time, and there may be no unit.
    `earlier` has the times of the same devices and units in earlier runs. `processes` has, for each
    unit, the index of a unit with the same work whose rounds run in new processes. If `processes`
    is None, the rounds of every unit run in new processes.
    """
    matters = float(np.log1p(threshold))
    shape = (len(times), times.shape[1])
    rounds = summarize(times.reshape(-1, times.shape[-1]))
    units = _levels(times)
    level = np.column_stack([units, _whole(units)])
    # The spread of the devices already includes the noise of a typical device's rounds.
    variance = _mean_variance(rounds, shape)
    own_error = np.fmax(variance - row_medians(variance.T), 0.0)
    own_error = np.column_stack([own_error, np.zeros(len(times))])
    floors = _floors(variance, processes)
    effect, limit, p = (np.full(level.shape, np.nan) for _ in range(3))
    detectable = np.full(level.shape[1], np.nan)
    no_majority = np.zeros(level.shape, bool)
    comparisons = max(1, int(np.isfinite(level).sum()))
    tame = has_tame_tails(units)
    for unit in range(level.shape[1]):  # units may have different devices
        there = np.flatnonzero(np.isfinite(level[:, unit]))
        if len(there) < 2:  # noqa: PLR2004 # there is no other device
            continue
        values, errors = level[there, unit], own_error[there, unit]
        reference, split = _reference(values, matters)  # unusual devices would widen the spread
        against = _against(
            values, errors, reference, comparisons, matters, tame=tame, floor=floors[unit]
        )
        effect[there, unit], limit[there, unit], headroom, p[there, unit] = against
        smallest = np.maximum(limit[there, unit], matters) + headroom
        detectable[unit] = np.median(smallest if reference.all() else smallest[~reference])
        slower_half = split & (values > np.median(values))
        limit[there[slower_half], unit] = np.inf  # no data shows which half is right
        no_majority[there, unit] = slower_half | (
            (len(there) == 2) & (effect[there, unit] > 0)  # noqa: PLR2004 # a majority needs three
        )
    since, p_since = _since(rounds, earlier, matters, shape)
    slow = effect > np.maximum(matters, limit)
    whole = slow[:, -1:] & (effect > matters)  # slow as a whole, and too slow in this unit
    p = np.where(whole, np.fmin(p, p[:, -1:]), p)
    slow |= whole
    ambiguous = (effect > matters) & ~slow
    effect, p, slow, ambiguous, no_majority = (
        each[:, :-1] for each in (effect, p, slow, ambiguous, no_majority)
    )
    return Judgement(
        effect=effect,
        p=p,
        slow=slow,
        ambiguous=ambiguous,
        no_majority=ambiguous & no_majority,
        detectable=detectable[:-1],
        since=since,
        slower_than_before=(since > matters) & (p_since <= FALSE_DISCOVERY),
    )


def _levels(times: Floats) -> Floats:
    """Return the mean of each device's rounds in each unit, with the effect of outliers limited.

    A round that is further than `DISTURBED` deviations from the median of its device's rounds is
    moved to this distance. The deviation is the standard deviation of a typical device's rounds in
    the unit.
    """
    devices, units, _ = times.shape
    lines = times.reshape(-1, times.shape[-1])
    middle = row_medians(lines)[:, None]
    rounds = summarize(lines)
    scatter = np.sqrt(rounds.squares / np.maximum(rounds.number - 1, 1))
    scatter[rounds.number < 2] = np.nan  # noqa: PLR2004 # one round has no scatter
    typical = np.tile(row_medians(scatter.reshape(devices, units).T), devices)[:, None]
    clipped = middle + np.clip(lines - middle, -DISTURBED * typical, DISTURBED * typical)
    return summarize(clipped).mean.reshape(devices, units)


def _mean_variance(rounds: RoundStatistics, shape: tuple[int, int]) -> Floats:
    """Return the variance of each level, computed from the rounds of the level.

    The variance is NaN if the level has fewer than two rounds.
    """
    number = np.maximum(rounds.number, 2)
    variance = np.where(rounds.number > 1, rounds.squares / (number - 1) / number, np.nan)
    return variance.reshape(shape)


def _floors(variance: Floats, processes: Sequence[int] | None) -> Floats:
    """Return the smallest spread to assume for each unit, and then for the devices as a whole.

    A process may run at one of two speeds. If all rounds run in one process, devices look alike
    until a process runs at the other speed. Rounds in separate processes show how far the two
    speeds are apart. The noise of a unit is known if some device has at least two rounds.
    """
    floors = row_medians(np.sqrt(variance).T)
    is_repeated = np.asarray(np.isfinite(variance).any(axis=0))
    if processes is not None:
        floors = np.where(is_repeated[list(processes)], floors[list(processes)], floors)
    return np.append(floors, np.median(floors[is_repeated]) if is_repeated.any() else 0.0)


def _whole(level: Floats) -> Floats:
    """Return each device's median level over the units, relative to the other devices.

    The median is NaN if the device has times in fewer than half of the units in which more than
    `MIN_OTHERS` devices have times.
    """
    nothing = np.full(len(level), np.nan)
    common = level[:, np.isfinite(level).sum(axis=0) > MIN_OTHERS]
    if not common.size:
        return nothing
    apart = common - row_medians(common.T)
    often = 2 * np.isfinite(apart).sum(axis=1) >= apart.shape[1]
    return np.where(often, row_medians(apart), np.nan) if often.sum() > MIN_OTHERS else nothing


def _reference(values: Floats, matters: float) -> tuple[NDArray[np.bool_], bool]:
    """Return which devices are usual, and whether half of the devices are unusual.

    All devices are usual, unless they form two groups. Then only the larger group is usual.
    """
    ranked = np.sort(values)
    gaps = np.diff(ranked)
    at = int(np.argmax(gaps))
    width = max(ranked[at] - ranked[0], ranked[-1] - ranked[at + 1])
    everyone = np.ones(len(values), bool)
    if len(values) <= MIN_OTHERS or gaps[at] <= max(matters, TWO_GROUPS * width):
        return everyone, False
    slower = values > ranked[at]
    if 2 * slower.sum() == len(values):
        return ~slower, True
    return (slower if 2 * slower.sum() > len(values) else ~slower), False


class _Against(NamedTuple):
    """The devices of a unit, compared with other devices. The arrays have an element per device."""

    effect: Floats  # logarithm of a device's time relative to the other devices' median
    limit: Floats  # largest effect that a good device may have
    headroom: Floats
    """A slowdown is found with probability 1 - `MISSED` if it exceeds the limit by the headroom.
    The headroom allows for a device that was faster than the other devices while it was good."""

    p: Floats  # p-value of the effect, times the number of comparisons


def _against(
    values: Floats,
    errors: Floats,
    reference: NDArray[np.bool_],
    comparisons: int,
    matters: float,
    *,
    tame: bool,
    floor: float,
) -> _Against:
    """Compare each device with the usual devices. `reference` states which devices are usual."""
    against = _Against(*np.empty((4, len(values))))
    for are_usual in (True, False):
        members = np.flatnonzero(reference == are_usual)
        if not len(members):
            continue
        others = np.tile(values[reference], (len(members), 1))
        if are_usual:  # a device is not compared with itself
            others = others[~np.eye(len(members), dtype=bool)].reshape(len(members), -1)
        effect = values[members] - np.median(others, axis=1)
        if others.shape[1] < MIN_OTHERS:
            part = _against_few(effect, errors[members], comparisons)
        else:
            spread = partial(_spread, floor=floor, errors=errors[members])
            part = _against_many(effect, others, spread, comparisons, matters, tame=tame)
        for array, of_members in zip(against, part, strict=True):
            array[members] = of_members
    return against


def _against_few(effect: Floats, errors: Floats, comparisons: int) -> _Against:
    """Compare devices with others that are too few to estimate the spread of good devices."""
    between = np.full_like(effect, np.log1p(BETWEEN))
    limit = between + 3 * np.sqrt(errors)
    return _Against(
        effect, limit, between, np.where(effect <= limit, 1.0, FAMILY_WISE / comparisons)
    )


def _against_many(
    effect: Floats,
    others: Floats,
    spread: Callable[[Floats], Floats],
    comparisons: int,
    matters: float,
    *,
    tame: bool,
) -> _Against:
    """Compare devices with others. `others` has a row for each device."""
    count, level = others.shape[1], FAMILY_WISE / comparisons
    is_small = count <= SMALL_FLEET
    usual = spread(others.std(axis=1, ddof=1) if is_small else mad(others))
    scale, df = NORMAL if tame and not is_small else _tail(TAILS, count)
    headroom = scale * special.stdtrit(df, 1 - MISSED) * usual
    limit, beyond = _limit(effect, scale * usual, df, level)
    if is_small and count >= min(MAD_TAILS):
        scale, df = _tail(MAD_TAILS, count)
        robust, beyond_robust = _limit(effect, scale * spread(mad(others)), df, level)
        if (effect > np.maximum(robust, matters)).sum() >= MIN_HIDDEN:
            limit, beyond = np.minimum(limit, robust), np.minimum(beyond, beyond_robust)
    return _Against(effect, limit, headroom, np.minimum(1.0, comparisons * beyond))


def _spread(of_devices: Floats, floor: float, errors: Floats) -> Floats:
    """Return the standard deviation of good devices, with the errors of the judged devices."""
    return np.asarray(np.sqrt(np.maximum(of_devices, floor) ** 2 + errors))


def _limit(apart: Floats, unit: Floats, df: float, level: float) -> tuple[Floats, Floats]:
    """Return the limits at a level, and the p-values of the devices' distances `apart`."""
    beyond = np.asarray(special.stdtr(df, -apart / np.maximum(unit, 1e-9)), float)
    return special.stdtrit(df, 1 - level) * unit, beyond


def has_tame_tails(level: Floats) -> bool:
    """Return whether the levels of the devices of a large fleet are normally distributed."""
    large = level[:, np.isfinite(level).sum(axis=0) > SMALL_FLEET + 1]
    if large.size < TAME_VALUES:
        return False
    apart = np.abs(large - np.nanmedian(large, axis=0))
    z = apart / np.maximum(MAD_TO_SIGMA * np.nanmedian(apart, axis=0), 1e-9)
    usual = row_medians(z) < TAME_TAIL  # leave out devices that are slow as a whole
    return float(np.nanquantile(z[usual], TAME_QUANTILE)) < TAME_TAIL


def mad(others: Floats) -> Floats:
    """Return the median absolute deviation of each row, scaled to a standard deviation."""
    far = np.abs(others - np.median(others, axis=1, keepdims=True))
    return np.asarray(MAD_TO_SIGMA * np.median(far, axis=1))


def _tail(tails: Mapping[int, tuple[float, float]], others: int) -> tuple[float, float]:
    """Return scale and degrees of freedom, interpolated between the entries of a table."""
    counts = np.array(sorted(tails))
    scales, dfs = np.array([tails[count] for count in counts]).T
    at, places = np.log(others), np.log(counts)
    return float(np.interp(at, places, scales)), float(np.interp(at, places, dfs))


def _since(
    rounds: RoundStatistics, before_now: Floats | None, matters: float, shape: tuple[int, int]
) -> tuple[Floats, Floats]:
    """Return each device's change since its own earlier rounds, and the change's adjusted p-value.

    `gpubench diff` compares two files by the same test.
    """
    since, p = np.full(shape, np.nan), np.full(shape, np.nan)
    if before_now is None:
        return since, p
    earlier = summarize(before_now.reshape(-1, before_now.shape[-1]))
    both = ((earlier.number > 0) & (rounds.number > 0)).nonzero()[0]
    if len(both) == 0:
        return since, p
    before, now = (RoundStatistics(*(field[both] for field in side)) for side in (earlier, rounds))
    variance = moderate(before, now)
    effect = now.mean - before.mean
    since.flat[both] = effect
    margin = np.full_like(effect, matters)
    p.flat[both] = np.where(np.isnan(variance.df), np.nan, p_values(effect, margin, variance))
    tested = ~np.isnan(p)
    p[tested] = adjusted(p[tested])
    return since, p
