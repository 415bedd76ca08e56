"""The race of `tune`, which eliminates configurations that are shown to be slower than the best.

The method is successive elimination by paired comparisons: the logarithms of two configurations'
times are subtracted round by round, so that a disturbance of a whole round cancels. docs/tune.md
has the method, its source and its assumptions. This module has pure functions on arrays, and the
state of a race.
"""

import math
import random
from collections import Counter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from gpubench.stats.intervals import MAD_TO_SIGMA, WINSOR
from gpubench.stats.polish import row_medians

Floats = NDArray[np.float64]

LEVEL = 0.005
"""Probability that the bound of one difference is wrong in one round."""

WIDTHS = stdtrit(np.maximum(np.arange(200), 1), 1 - LEVEL)
"""Half-width of a bound, divided by the standard error. The index is the number of degrees of
freedom."""

MIN_VISITS = 7
"""Minimum number of rounds that a configuration and the leader must share before their differences
decide. A kernel with two equally likely speeds is slow in all seven rounds in 0.8 % of races."""

EARLY_VISITS = 3
EARLY_FACTOR = 1.3
"""A configuration is eliminated before `MIN_VISITS` visits if it was slower than the leader by this
factor in every round, in at least `EARLY_VISITS` rounds."""

DISSENT = 5
"""One visit in which a configuration was not slower than the leader is tolerated for every
`DISSENT` visits beyond `MIN_VISITS` (sign test at 1 %)."""

COMMON_DF = 2.0
"""Degrees of freedom of the usual scatter, towards which the scatter of each configuration is
shrunk. The number is small, because the best configuration may scatter ten times as much as other
configurations."""

MAX_ROUNDS = 20
"""Maximum number of rounds. Each further round would narrow a bound by less than 3 %."""

VISITS_EACH = 8
"""Average number of visits of a configuration after which a race without a budget is over. The race
has at least `MIN_LIMIT` visits."""

MIN_LIMIT = 120


class Race:
    """A race of configurations, numbered from 0.

    The caller visits (measures) the configurations in `waiting`. `add` records a time, `withdraw`
    takes a configuration out of the race, and `judge` ends a round. A `patient` race is limited
    only by its number of rounds.
    """

    def __init__(self, within: float, seed: int = 0, *, patient: bool = False) -> None:
        self.margin = math.log1p(within)
        self._order = random.Random(seed)  # noqa: S311 # a shuffle, not a secret
        self._logs: dict[tuple[int, int], float] = {}
        """Maps the configuration and the round of each visit to the logarithm of the time."""

        self._entered, self._patient = 0, patient
        self.round = 1
        self.racing: set[int] = set()
        self.waiting: list[int] = []
        """Survivors that were not visited in this round yet, in the order of their visits."""

        self.leader: int | None = None
        """The configuration whose time has the lowest upper bound."""

        self.leader_error = math.inf
        """Half of the leader's 95 % interval, as a fraction of its time."""

        self.slower: dict[int, float] = {}
        """Lower bound of the slow-down of each eliminated configuration, relative to the leader.
        0.1 stands for 10 %."""

        self.apart: dict[int, tuple[float, float]] = {}
        """Lower and upper bound of each survivor's slow-down relative to the leader, as logarithms.
        The last round determined these bounds."""

        self.behind: dict[int, float] = {}
        """Estimated slow-down of each survivor relative to the leader, as a logarithm."""

    def enter(self, count: int = 1) -> list[int]:
        """Add configurations to the race from this round on, and return their numbers."""
        new = list(range(self._entered, self._entered + count))
        self._entered += count
        self.racing |= {*new}
        self.waiting += new
        return new

    def add(self, number: int, time_us: float) -> None:
        """Record the time of a visit."""
        self.waiting.remove(number)
        self._logs[number, self.round] = math.log(time_us)

    def withdraw(self, number: int) -> None:
        """Remove a configuration that failed, or that cannot be the best, from the race."""
        self.racing.discard(number)
        if number in self.waiting:
            self.waiting.remove(number)
        if self.leader == number:
            self.leader = None

    @property
    def spent(self) -> bool:
        """Whether the race has used all its rounds or visits, and is `settled`."""
        limit = math.inf if self._patient else max(VISITS_EACH * self._entered, MIN_LIMIT)
        return (self.round > MAX_ROUNDS or len(self._logs) >= limit) and self.settled

    @property
    def settled(self) -> bool:
        """Whether all survivors were visited often enough to be judged, or one survivor is left."""
        visits = Counter(number for number, _ in self._logs)
        return len(self.racing) < 2 or all(visits[number] >= MIN_VISITS for number in self.racing)  # noqa: PLR2004 # a race needs two

    @property
    def decided(self) -> bool:
        """Whether one configuration is left, or all remaining configurations count as equal."""
        if len(self.racing) < 2:  # noqa: PLR2004 # one has won
            return self.round > 1
        near = all(high <= self.margin for _, high in self.apart.values())
        return near and self.apart.keys() == self.racing and self.settled

    @property
    def over(self) -> bool:
        """Whether the race is decided or `spent`."""
        return self.round > 1 and (self.decided or self.spent)

    def judge(self) -> list[int]:
        """End the round, return the configurations to eliminate, and begin the next round."""
        numbers, left = sorted(self.racing), []
        if numbers:
            rounds = range(1, self.round + 1)
            times = [
                [self._logs.get((number, at), math.nan) for at in rounds] for number in numbers
            ]
            standings = compare(np.array(times), self.margin)
            self.leader = numbers[standings.leader]
            self.leader_error = standings.leader_error
            bounds = zip(standings.low.tolist(), standings.high.tolist(), strict=True)
            self.apart = dict(zip(numbers, bounds, strict=True))
            self.behind = dict(zip(numbers, standings.behind.tolist(), strict=True))
            left = [numbers[place] for place in np.flatnonzero(standings.leaves)]
            self.slower |= {number: math.expm1(self.apart.pop(number)[0]) for number in left}
        self.racing -= {*left}
        self.round += 1
        self.waiting = sorted(self.racing)
        self._order.shuffle(self.waiting)
        return left


class Standings(NamedTuple):
    """The comparison of all survivors with the leader.

    Each array has an element for each survivor.
    """

    leader: int
    leader_error: float
    behind: Floats
    """Estimated logarithm of the survivor's time divided by the leader's time. An element is NaN if
    no round has both times."""

    low: Floats
    high: Floats
    leaves: NDArray[np.bool_]


def compare(logs: Floats, margin: float) -> Standings:
    """Return the comparison of all configurations with the leader.

    `logs` has a row for each configuration and a column for each round. NaN stands for a missing
    visit.

    `margin` is the logarithm of the factor up to which configurations count as equal.
    """
    level = logs - row_medians(logs.T)  # minus the round's median
    mean, error, half, count = _means(level)
    upper = np.where(count > 1, mean + half, np.inf if count.max() > 1 else mean)
    seen_enough = count >= min(MIN_VISITS, count.max())
    leader = int(np.argmin(np.where(seen_enough, upper, np.inf)))
    visits = count[leader]
    own = float(stdtrit(visits - 1, 0.975) * error[leader]) if visits > 1 else math.inf
    apart = logs - logs[leader]
    mean, _, half, count = _means(apart)
    low, high = mean - half, mean + half
    low[count < 2], high[count < 2] = -np.inf, np.inf  # noqa: PLR2004 # one visit has no scatter
    low[leader] = high[leader] = 0.0
    shared = np.isfinite(apart)
    contradicting = (shared & (apart <= margin)).sum(axis=1)
    allowed = np.maximum(count - MIN_VISITS, 0) // DISSENT
    enough = (count >= MIN_VISITS) & (contradicting <= allowed)
    smallest = np.where(shared, apart, np.inf).min(axis=1)
    early = (count >= EARLY_VISITS) & (smallest > math.log(EARLY_FACTOR) + margin)
    leaves = early | (enough & (low > margin))
    leaves[leader] = False
    low = np.where(early, np.maximum(low, margin), low)
    return Standings(leader, own, np.where(count > 0, mean, np.nan), low, high, leaves)


def _means(values: Floats) -> tuple[Floats, Floats, Floats, NDArray[np.int64]]:
    """Return each row's winsorized mean, with its standard error, half-width and number of visits.

    The scatter of each row is shrunk towards the median scatter of all rows.
    """
    there = np.isfinite(values)
    count = there.sum(axis=1)
    middle = row_medians(values)
    scale = MAD_TO_SIGMA * row_medians(np.abs(values - middle[:, None]))
    # The MAD of two values hardly shows their scatter. The MAD of mostly equal values is 0.
    reach = np.where((count > 2) & (scale > 0), WINSOR * scale, np.inf)[:, None]  # noqa: PLR2004 # two values are too few
    clipped = np.clip(values, middle[:, None] - reach, middle[:, None] + reach)
    filled = np.where(there, clipped, 0.0)
    mean = filled.sum(axis=1) / np.maximum(count, 1)
    squares = np.where(there, (clipped - mean[:, None]) ** 2, 0.0).sum(axis=1)
    unclipped = np.maximum((there & (clipped == values)).sum(axis=1), 2)
    # Clipped values have no degrees of freedom (Tukey and McLaughlin 1963).
    squares = squares * (np.maximum(count - 1, 1) / (unclipped - 1)) ** 2
    df = np.maximum(count - 1, 0)
    repeated = (df > 0) & (squares > 0)
    variance = np.divide(squares, df, out=np.zeros_like(squares), where=df > 0)
    usual = float(np.median(variance[repeated])) if repeated.any() else 0.0
    shrunk = (COMMON_DF * usual + df * variance) / (COMMON_DF + df)
    error = np.sqrt(shrunk / np.maximum(count, 1))
    return mean, error, WIDTHS[np.minimum(df, len(WIDTHS) - 1)] * error, count
