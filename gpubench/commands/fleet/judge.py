"""Which devices are slow: each against the others, and against itself earlier. Pure, on arrays.

docs/fleet.md states the rules for users, and how often they find what.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpubench.stats.intervals import MAD_TO_SIGMA
from gpubench.stats.moderated import (
    LEAST_SD,
    Floats,
    Rounds,
    Variance,
    adjusted,
    moderate,
    p_values,
    shrunk,
)

FEW = 4
"""Devices from which on their spread says how much good ones differ. With fewer, `between` does."""

MAD_EFFICIENCY = 0.37
"""Of the variance by the median absolute deviation, for normal values: it knows the variance as
well as the sum of squares of so many times the values (Rousseeuw and Croux 1993)."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How much slower a device must be to count as slow."""

    threshold: float = 0.03
    """Relative difference that matters."""

    q: float = 0.01
    """False discovery rate over all devices and units."""

    between: float = 0.10
    """Relative difference that two good devices of a kind may have, where too few are there to see
    (docs/decisions/0015)."""


class Judgement(NamedTuple):
    """Arrays of shape (devices, units); NaN and False where a device or unit has no times."""

    effect: Floats
    """Logarithm of its time over the others' median time."""

    p: Floats
    """p-value of that, adjusted."""

    slow: NDArray[np.bool_]
    ambiguous: NDArray[np.bool_]
    """Beyond the threshold, and not certain."""

    since: Floats
    """Logarithm of its time over its own earlier time; NaN without a history."""

    slower_than_before: NDArray[np.bool_]


def judge(times: Floats, earlier: Floats | None = None, limits: Limits | None = None) -> Judgement:
    """Judge logarithms of times, of shape (devices, units, rounds), NaN where there is none.

    `earlier` is what each device took in earlier runs, of as many devices and units.
    """
    limits = limits or Limits()
    devices, units, _ = times.shape
    rounds = _summary(times)
    level = rounds.mean.reshape(devices, units)
    centre = np.full((devices, units), np.nan)
    spread = np.full(units, np.nan)
    count = np.zeros(units)
    for unit in range(units):  # not all units need have the same devices
        there = ~np.isnan(level[:, unit])
        count[unit] = there.sum()
        centre[there, unit] = _medians_of_others(level[there, unit])
        if count[unit] >= FEW:
            far = np.abs(level[there, unit] - centre[there, unit])
            spread[unit] = MAD_TO_SIGMA * np.median(far)
    effect = level - centre
    error, df, margin = _error(rounds, spread, count, (devices, units), limits)
    p = p_values(effect.ravel(), margin.ravel(), Variance(error.ravel(), df.ravel()))
    p = p.reshape(effect.shape)
    p[np.isnan(effect)] = np.nan
    since, p_since = _since(rounds, earlier, limits, (devices, units))
    both = np.stack([p, p_since])
    tested = ~np.isnan(both)
    both[tested] = adjusted(both[tested])
    beyond = effect > np.maximum(np.log1p(limits.threshold), margin)
    slow = beyond & (both[0] <= limits.q)
    return Judgement(
        effect=effect,
        p=both[0],
        slow=slow,
        ambiguous=beyond & ~slow,
        since=since,
        slower_than_before=(since > np.log1p(limits.threshold)) & (both[1] <= limits.q),
    )


def _summary(times: Floats) -> Rounds:
    """Number, mean and squares of the rounds of each device and unit, flat."""
    flat = times.reshape(-1, times.shape[-1])
    there = ~np.isnan(flat)
    number = there.sum(axis=1).astype(float)
    total = np.where(there, flat, 0).sum(axis=1)
    mean = np.divide(total, number, out=np.full_like(total, np.nan), where=number > 0)
    squares = np.where(there, (flat - mean[:, None]) ** 2, 0).sum(axis=1)
    nothing = np.zeros_like(mean)
    return Rounds(number, mean, squares, nothing, nothing, nothing, nothing)


def _medians_of_others(values: Floats) -> Floats:
    """For each value the median of all others; NaN where there are none."""
    if len(values) < 2:  # noqa: PLR2004 # one has no others
        return np.full_like(values, np.nan)
    order = np.argsort(values)
    ranked = values[order]
    place = np.empty(len(values), int)
    place[order] = np.arange(len(values))
    low, high = (len(values) - 2) // 2, (len(values) - 1) // 2
    middle: Floats = (ranked[low + (place <= low)] + ranked[high + (place <= high)]) / 2
    return middle


def _error(
    rounds: Rounds, spread: Floats, count: Floats, shape: tuple[int, int], limits: Limits
) -> tuple[Floats, Floats, Floats]:
    """Standard error of each effect, its degrees of freedom, and the margin that is allowed for.

    Two variances add up: of a device's rounds, moderated by the other devices of the unit, and of
    good devices in the unit, moderated by the other units. Their degrees of freedom are
    Satterthwaite's.
    """
    number = rounds.number.reshape(shape)
    df_within = number - 1
    tested = df_within > 0
    within = np.full(shape, np.nan)
    squares = rounds.squares.reshape(shape)
    within[tested] = np.maximum(squares[tested] / df_within[tested], LEAST_SD**2)
    for unit in range(shape[1]):
        of_unit = tested[:, unit], unit
        within[of_unit], df_within[of_unit] = shrunk(within[of_unit], df_within[of_unit])
    between = np.zeros_like(spread)
    df_between = np.ones_like(spread)
    known = ~np.isnan(spread)
    df_known = np.maximum(1.0, MAD_EFFICIENCY * (count[known] - 1))
    least = np.maximum(spread[known] ** 2, LEAST_SD**2)
    between[known], df_between[known] = shrunk(least, df_known)
    others = np.maximum(count - 1, 1)
    of_rounds = within / number * np.where(known, 1, 1 + 1 / others)
    of_devices = between * (1 + 1 / others)
    variance = of_rounds + of_devices
    df = variance**2 / (of_rounds**2 / df_within + of_devices**2 / df_between)
    margin = np.where(known, 0.0, np.log1p(limits.between))
    return np.sqrt(variance), df, np.broadcast_to(margin, shape)


def _since(
    rounds: Rounds, before_now: Floats | None, limits: Limits, shape: tuple[int, int]
) -> tuple[Floats, Floats]:
    """Each device against its own earlier rounds: the effect, and its p-value beyond the threshold.

    As `gpubench diff` compares two files.
    """
    since, p = np.full(shape, np.nan), np.full(shape, np.nan)
    if before_now is None:
        return since, p
    earlier = _summary(before_now)
    both = ((earlier.number > 0) & (rounds.number > 0)).nonzero()[0]
    if len(both) == 0:
        return since, p
    before, now = (Rounds(*(field[both] for field in side)) for side in (earlier, rounds))
    variance = moderate(before, now)
    effect = now.mean - before.mean
    since.flat[both] = effect
    margin = np.full_like(effect, np.log1p(limits.threshold))
    found = p_values(effect, margin, variance)
    p.flat[both] = np.where(np.isnan(variance.df), np.nan, found)
    return since, p
