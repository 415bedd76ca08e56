"""The race: which configurations are shown to be slower than the best, and leave. Pure.

It is successive elimination by confidence bounds (Even-Dar, Mannor and Mansour, Journal of Machine
Learning Research 7 (2006), 1079-1105), on medians instead of means, as disturbed visits must not
decide (Altschuler, Brunel and Malek, JMLR 20 (2019), 1-39). A round visits every survivor once.
Logarithms of times are compared, round effects removed: what slows a whole round says nothing.

Error control: with probability 95 % or more, no configuration that is within the margin of the best
leaves: the 5 % are divided among all pairs of configurations and all rounds (Bonferroni). The noise
is that of all configurations together. `docs/tune.md` has what
came of it on simulated landscapes.
"""

from __future__ import annotations

import math
import random

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

Floats = NDArray[np.float64]

LEVEL = 0.05
"""Probability that any configuration leaves that should not."""

MAX_ROUNDS = 30
"""Then what is left is called equal: each further round narrows the bounds by less than 2 %."""

VISITS_EACH, LEAST_VISITS = 3, 60
"""A race is over after so many visits for each configuration, or so many in all if that is more:
where the noise does not let it tell them apart, a sweep would not either. `--budget` lifts this."""

FIRST_NOISE = 0.1
"""Standard deviation of the logarithm of a time that was taken once: nothing bounds how far that
visit was disturbed. Twice as slow as the leader is slower whatever happened."""

NORMAL = {0.86: 1.4758, 0.99: 2.5758}
"""Quantiles of the absolute value of a standard normal variable, which turn those of deviations
into scales. The first is the noise: it has 65 % of the efficiency of the standard deviation, the
most of a single quantile, and 14 % of the visits may be disturbed at will. The second is that of
the tail, which decides while there are few visits."""

FEW = 2
"""Visits of which all may have been disturbed."""

EFFICIENCY = 0.65
MEDIAN_ERROR = math.sqrt(math.pi / 2)
"""Standard error of a median over that of a mean, for many normal values."""


class Race:
    """Configurations by number, from 0. Whoever runs it visits those that are `waiting`.

    `add` tells it a time, `withdraw` that there will be none, and `judge` ends a round. `entries`
    is the largest number of configurations that may ever take part. A `patient` race is bounded by
    its rounds alone.
    """

    def __init__(
        self, entries: int, within: float, seed: int = 0, *, patient: bool = False
    ) -> None:
        self.margin = math.log1p(within)
        self._pairs = max(1, entries * (entries - 1))
        self._order = random.Random(seed)  # noqa: S311 # a shuffle, not a secret
        self._logs: list[list[float]] = []
        """Of each configuration: a time a round, NaN where it had no visit."""

        self._visits, self._patient = 0, patient
        self.round = 1
        self.racing: set[int] = set()
        self.waiting: list[int] = []
        """Survivors without a visit this round, in its order."""

        self.leader: int | None = None
        """The one whose upper bound is lowest."""

        self.leader_error = math.inf
        """Half its interval, as a fraction of its time."""

        self.slower: dict[int, float] = {}
        """How much each configuration that left is slower at the least: 0.1 is 10 %."""

        self.apart: dict[int, tuple[float, float]] = {}
        """Bounds of how much each survivor is slower than the leader, as of the last round."""

    def enter(self, count: int = 1) -> list[int]:
        """Let more configurations take part, from this round on: their numbers."""
        new = list(range(len(self._logs), len(self._logs) + count))
        self._logs += ([math.nan] * (self.round - 1) for _ in new)
        self.racing |= {*new}
        self.waiting += new
        return new

    def add(self, number: int, time_us: float) -> None:
        """The time of a visit."""
        self.waiting.remove(number)
        self._logs[number].append(math.log(time_us))
        self._visits += 1

    def withdraw(self, number: int) -> None:
        """It failed, or cannot be the best."""
        self.racing.discard(number)
        if number in self.waiting:
            self.waiting.remove(number)
        if self.leader == number:
            self.leader = None

    @property
    def spent(self) -> bool:
        """Whether it has had all its rounds, or visits."""
        most = math.inf if self._patient else max(VISITS_EACH * len(self._logs), LEAST_VISITS)
        return self.round > MAX_ROUNDS or self._visits >= most

    @property
    def over(self) -> bool:
        """Whether all survivors are within the margin of each other, or the race is `spent`."""
        near = all(high <= self.margin for _, high in self.apart.values())
        judged = bool(self.apart) and self.apart.keys() == self.racing
        if self.round == 1:
            return False
        return len(self.racing) < 2 or self.spent or (near and judged)  # noqa: PLR2004 # one has won

    def judge(self) -> list[int]:
        """End the round: those that leave, and a new round begins with the others."""
        numbers = np.array(sorted(self.racing), int)
        left: list[int] = []
        if len(numbers):
            logs = np.full((len(self._logs), self.round), math.nan)
            for number, taken in enumerate(self._logs):
                logs[number, : len(taken)] = taken
            left = self._compare(numbers, logs)
        self.racing -= {*left}
        self.round += 1
        for taken in self._logs:
            taken.extend([math.nan] * (self.round - 1 - len(taken)))
        self.waiting = sorted(self.racing)
        self._order.shuffle(self.waiting)
        return left

    def _compare(self, numbers: NDArray[np.int64], logs: Floats) -> list[int]:
        effects, noise, tail, df = rounds_and_noise(logs)
        low, high, visits = middle(logs[numbers] - effects, spare=1)
        few = np.where(visits > 1, tail, max(tail, FIRST_NOISE))
        noises = np.where(visits > FEW, noise, np.maximum(noise, few))
        errors = MEDIAN_ERROR * noises / np.sqrt(visits)
        width = -stdtrit(df, LEVEL / MAX_ROUNDS / self._pairs)
        best = int(np.argmin(high + width * errors))
        both = width * np.hypot(errors, errors[best])
        least, most = low - high[best] - both, high - low[best] + both
        least[best] = most[best] = 0.0
        gone = least > self.margin
        self.leader, self.leader_error = int(numbers[best]), float(width * errors[best])
        bounds = zip(numbers.tolist(), least.tolist(), most.tolist(), strict=True)
        apart = {number: (low, high) for number, low, high in bounds}
        left = numbers[gone].tolist()
        self.slower |= {number: math.expm1(apart.pop(number)[0]) for number in left}
        self.apart = apart
        return left  # type: ignore[no-any-return] # NumPy's tolist


def rounds_and_noise(logs: Floats) -> tuple[Floats, float, float, float]:
    """The effects of the rounds; the noise of a visit, in the middle and in the tail; its df.

    Rows are configurations, columns rounds, NaN where there was no visit. An effect is the median
    of what a round's visits differ by from their configurations' medians (two steps of Tukey's
    median polish).
    """
    several = logs[np.isfinite(logs).sum(axis=1) > 1]
    effects, entries = np.zeros(logs.shape[1]), np.zeros(logs.shape[1])
    if len(several):
        for _ in range(2):
            apart, _visits = deviations(several - effects)
            low, high, entries = middle(apart.T)
            effects = effects + np.where(entries > 0, (low + high) / 2, 0.0)
    apart, visits = deviations(several - effects)
    # What is left after the medians were taken out is smaller than the noise.
    left = (1 - 1 / visits)[:, None] * (1 - 1 / np.maximum(entries, 1))
    used = np.isfinite(several) & (left > 0)
    if not used.any():
        return effects, FIRST_NOISE, FIRST_NOISE, math.inf
    scaled = np.quantile(np.abs(apart[used]) / np.sqrt(left[used]), list(NORMAL))
    noise, tail = scaled / list(NORMAL.values())
    return effects, float(noise), float(tail), max(1.0, EFFICIENCY * float(left[used].sum()))


def deviations(values: Floats) -> tuple[Floats, Floats]:
    """From the median of each row, and how many values it has."""
    low, high, count = middle(values)
    return values - ((low + high) / 2)[:, None], count


def middle(values: Floats, spare: int = 0) -> tuple[Floats, Floats, Floats]:
    """The lower and the upper median of each row without its NaNs, and how many values it has.

    With `spare`, so many places in the order below and above, as far as there are any.
    """
    count = np.isfinite(values).sum(axis=1)
    last = np.maximum(count - 1, 0)
    below = np.maximum((last - spare) // 2, 0)
    ordered, rows = np.sort(values, axis=1), np.arange(len(values))  # NaNs last
    return ordered[rows, below], ordered[rows, last - below], count
