"""Finds points with two speeds. A process runs at one speed, so rounds fall into two groups."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from gpubench.stats.moderated import RoundStatistics

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

MODE_GAP = 2.0
"""Rounds are bimodal if the gap between two groups exceeds the width of either group by this
factor."""

DECIDING_ROUNDS = 20
"""A point with bimodal rounds is judged if both sides together have at least this number of
rounds."""

NEAR = 0.25
"""A time that was left out has two distances: from the level of the other side, and from the level
of its own side. The time counts as being at the other side's level if the first distance divided by
the second distance is below this value."""

ALIKE = 0.7
"""Two speeds of a point may explain a shift if the difference between the speeds is at least
this fraction of the shift."""


class Speeds(NamedTuple):
    """The two speeds of a point, computed from the rounds of both sides of the comparison."""

    fast: float
    slow: float
    """Means of the logarithms of the times at the fast speed and at the slow speed."""

    part: float
    """Fraction of the rounds that were slow."""


class Modes(NamedTuple):
    """The points that have two speeds, and the changes that these speeds may explain."""

    speeds: dict[int, Speeds]
    """Maps the index of a point with two speeds to the two speeds."""

    explain: Flags
    """Whether two speeds may explain the shift of each point."""

    hides: Floats
    """Largest slow-down that the two speeds of each point would explain. The value is 0 for a point
    with a single speed."""

    aside: Floats
    """Slow-down of each point in its slowest round of the base that was left out. The value is 0 if
    there is no such round, or if the slow-down is within the threshold."""

    @property
    def overlapping(self) -> list[Speeds]:
        """The two speeds of each point whose shift may come from two speeds."""
        return [speeds for point, speeds in self.speeds.items() if self.explain[point]]


def find_modes(
    sides: tuple[RoundStatistics, RoundStatistics],
    logs: tuple[Floats, Floats],
    set_aside: tuple[Floats, Floats],
    threshold: Floats,
) -> Modes:
    """Return the points whose rounds fall into two groups that are further apart than `threshold`.

    `logs` has the logarithms of the times of both sides, and `set_aside` the logarithms of the
    times in rounds that were left out (`polish`). A point also has two speeds if a time that was
    left out is at the other side's level (`NEAR`). The two speeds do not explain a shift if the two
    sides are further apart than the two speeds within either side.
    """
    base, new = sides
    hidden, grouped = np.zeros((2, len(base.mean)), bool)
    for own, other, times in ((base, new, set_aside[0]), (new, base, set_aside[1])):
        near, far = (np.abs(times - side.mean[:, None]) for side in (other, own))
        hidden |= ((far > threshold[:, None]) & (near < NEAR * far)).any(axis=1)
        grouped |= (own.gap > threshold) & (own.gap > MODE_GAP * own.group)
    apart = np.maximum(new.low - base.high, base.low - new.high)
    spread = np.maximum(base.high - base.low, new.high - new.low)
    is_undecided = base.number + new.number < DECIDING_ROUNDS
    explain = (grouped & (apart <= spread) & is_undecided) | (hidden & is_undecided)
    together = np.hstack([*logs, *set_aside])
    points = np.flatnonzero(grouped | hidden).tolist()
    speeds = {i: two_speeds(together[i]) for i in points}
    hides = np.where(
        grouped & is_undecided, spread + base.high - new.low, np.where(explain, spread, 0.0)
    )
    aside = np.nan_to_num(set_aside[0] - base.mean[:, None]).max(axis=1, initial=0.0)
    return Modes(speeds, explain, hides, np.where(aside > threshold, aside, 0.0))


def two_speeds(logs: Floats) -> Speeds:
    """Divide the rounds of a point at the largest gap, and return the speeds of the two groups."""
    ordered = np.sort(logs[np.isfinite(logs)])
    fast, slow = np.split(ordered, [int(np.diff(ordered).argmax()) + 1])
    return Speeds(float(fast.mean()), float(slow.mean()), len(slow) / len(ordered))


def may_be_modes(
    effect: Floats,
    significant: Flags,
    sides: tuple[RoundStatistics, RoundStatistics],
    modes: Modes,
    q: float,
) -> Flags:
    """Return which significant effects may come from two speeds that the rounds do not show.

    If a point's two speeds are known, the fraction of slow rounds gives the probability that all
    rounds of the base are fast and all rounds of the new side are slow by chance. Effects in one
    direction are accepted if the probability that two speeds cause at least the same number of
    effects is at most `q` (Poisson).
    """
    base, new = (side.number for side in sides)
    expected, count = np.zeros((2, len(effect)))
    for direction in (effect > 0, effect < 0):
        count[direction] = max(1, (significant & direction).sum())
    for fast, slow, part in modes.overlapping:
        slower, faster = (1 - part) ** base * part**new, part**base * (1 - part) ** new
        chance = np.where(effect > 0, slower, faster)
        expected += np.where(slow - fast > ALIKE * np.abs(effect), chance, 0.0)
    return significant & (special.gammainc(np.maximum(count, 1), expected) > q)


def hidden_steps(sides: tuple[RoundStatistics, RoundStatistics], modes: Modes, q: float) -> Floats:
    """Return the largest slow-down of each point that the point's two speeds explain.

    The result is valid if no other point slowed.
    """
    base, new = (side.number for side in sides)
    expected, step = np.zeros((2, len(base)))
    for fast, slow, part in sorted(modes.overlapping, key=lambda speeds: speeds.fast - speeds.slow):
        expected += (1 - part) ** base * part**new
        is_explained = (step == 0) & (expected > -np.log1p(-q))
        step = np.where(is_explained, (slow - fast) / ALIKE, step)
    return step
