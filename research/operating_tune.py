"""Simulated races of `tune`, with known times and noise of many kinds (`operating.py` runs them).

Each race draws the true times of some configurations, its landscape, and races the configurations
by the rule of `gpubench tune` (`gpubench.stats.race.compare`).
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpubench.stats.race import MAX_ROUNDS, MIN_LIMIT, MIN_VISITS, VISITS_EACH, compare

WITHIN = 0.01
SPREAD = 0.5
"""Standard deviation of the logarithm of the configurations' true times."""

Random = np.random.Generator
Floats = NDArray[np.float64]


class Visits(NamedTuple):
    """The visits of one round."""

    rng: Random
    numbers: NDArray[np.int64]
    """The configurations that are visited."""

    best: int
    round: int
    """Number of the round. The first round has the number 0."""

    size: int
    """Number of configurations in the landscape."""

    memory: dict[str, Floats]
    """State that a landscape keeps from round to round."""

    def normal(self, deviation: float | Floats = 0.004) -> Floats:
        """Return normal noise."""
        return self.rng.normal(0, deviation, len(self.numbers))

    def chance(self, probability: float | Floats) -> NDArray[np.bool_]:
        """Return at which visits a random event of this probability happens."""
        return np.asarray(self.rng.random(len(self.numbers)) < probability)

    def kept(self, name: str, low: float, high: float) -> Floats:
        """Return a random number for each visit. A configuration keeps its number in all rounds."""
        numbers = self.memory.setdefault(name, self.rng.uniform(low, high, self.size))
        return np.asarray(numbers[self.numbers])

    @property
    def is_best(self) -> NDArray[np.bool_]:
        """Whether each visit is of the best configuration."""
        return np.asarray(self.numbers == self.best)


Noise = Callable[[Visits], Floats]
"""Function that returns the noise of visits. The noise is added to the logarithms of times."""


def outliers(part: float, factor: float, *, of_best: bool = True) -> Noise:
    """Return noise by which some visits take longer by a factor.

    If `of_best` is true, these are only visits of the best configuration.
    """
    return lambda v: v.normal() + math.log(factor) * v.chance(part) * (v.is_best | (not of_best))


def drift(visits: Visits) -> Floats:
    """Return the noise of a device that slows down as it warms up.

    The device is also slower in a fifth of each round.
    """
    place = np.linspace(0, 1, len(visits.numbers))[visits.rng.permutation(len(visits.numbers))]
    warm = 0.05 * (1 - np.exp(-(visits.round + place)))
    return visits.normal(0.005) + warm + 0.1 * (place > 0.8)  # noqa: PLR2004 # the last fifth


def busy_neighbour(v: Visits) -> Floats:
    hit = v.chance(0.4) & (v.round % 2 == 1)
    return v.normal() + hit * v.rng.uniform(0.05, 0.4)


def three_clocks(v: Visits) -> Floats:
    slower = v.rng.choice([0.0, 0.04, 0.09])
    return np.asarray(v.normal() + slower * v.kept("depends", 1 / 3, 1))


def unlike_spikes(v: Visits) -> Floats:
    late = v.chance(v.kept("parts", 0, 0.3))
    return np.asarray(v.normal() + late * v.rng.exponential(0.1, len(late)))


def cold_start(v: Visits) -> Floats:
    late = v.chance(0.1) & (v.round == 0)
    return np.asarray(v.normal() + late * np.log(v.rng.uniform(2, 5, len(late))))


LANDSCAPES: dict[str, tuple[Noise, int, int]] = {
    "normal noise of 0.2 %": (lambda v: v.normal(0.002), 200, 1),
    "normal noise of 0.5 %": (lambda v: v.normal(0.005), 200, 1),
    "1,000 configurations": (lambda v: v.normal(0.005), 1000, 1),
    "8 configurations": (lambda v: v.normal(0.005), 8, 1),
    "20 equally fast, 20 up to 2 % slower": (lambda v: v.normal(0.005), 200, 20),
    "all 50 equally fast": (lambda v: v.normal(0.005), 50, 50),
    "noise of 3 %": (lambda v: v.normal(0.03), 200, 1),
    "Student's t, 2 degrees of freedom": (
        lambda v: 0.005 * v.rng.standard_t(2, len(v.numbers)), 200, 1
    ),
    "slower by the absolute value of Cauchy's": (
        lambda v: 0.003 * np.abs(v.rng.standard_cauchy(len(v.numbers))), 200, 1
    ),
    "5 % of visits 20 % slower": (
        lambda v: v.normal(0.005) + v.chance(0.05) * v.rng.exponential(0.2, len(v.numbers)), 200, 1
    ),
    "10 % of visits 50 % slower": (
        lambda v: v.normal(0.005) + v.chance(0.1) * v.rng.exponential(0.5, len(v.numbers)), 200, 1
    ),
    "noise of 0.2 to 2 %, by configuration": (
        lambda v: v.normal(0.002 * 10 ** v.kept("widths", 0, 1)), 200, 1
    ),
    "drift of 5 %, and bursts of 10 %": (drift, 200, 1),
    "drift and bursts, 20 equally fast": (drift, 200, 20),
    "the best has 10 times the noise of 0.5 %": (
        lambda v: v.normal(np.where(v.is_best, 0.05, 0.005)), 200, 1
    ),
    "the best has 10 times the noise of 0.2 %": (
        lambda v: v.normal(np.where(v.is_best, 0.02, 0.002)), 200, 1
    ),
    "the best is 8 % slower in half of its visits": (
        lambda v: v.normal(0.005) + 0.08 * (v.chance(0.5) & v.is_best), 200, 1
    ),
    "noise of 2 % in ten of 200, the best among them": (
        lambda v: v.normal(np.where(v.numbers % 20 == v.best % 20, 0.02, 0.002)), 200, 1
    ),
    "offsets of 1 % that last a process": (lambda v: v.normal(0.003) + v.normal(0.01), 200, 1),
    "offsets of 3 % that last a process": (lambda v: v.normal(0.003) + v.normal(0.03), 200, 1),
    "a neighbour slows part of each second round": (busy_neighbour, 200, 1),
    "heat slows each by up to 6 % in half of the rounds": (
        lambda v: v.normal() + (v.rng.random() < 1 / 2) * v.kept("heat", 0, 0.06),
        200, 1
    ),
    "one-sided noise of 0.1 to 5 %, by configuration": (
        lambda v: 0.001 * 50 ** v.kept("widths", 0, 1)
        * (v.rng.lognormal(0, 1, len(v.numbers)) - 1), 200, 1
    ),
    "visits take 0, 1 or 2 % more": (
        lambda v: v.rng.choice([0.0, 0.01, 0.02], p=[0.6, 0.3, 0.1], size=len(v.numbers)), 200, 1
    ),
    "rounds at three clocks, on which each depends differently": (three_clocks, 200, 1),
    "up to 30 % of visits 10 % slower, by configuration": (unlike_spikes, 200, 1),
    "one in five visits of the best takes 3 times as long": (outliers(0.2, 3), 200, 1),
    "one in ten visits of the best takes 3 times as long": (outliers(0.1, 3), 200, 1),
    "one in seven visits of the best takes 1.7 times as long": (outliers(1 / 7, 1.7), 200, 1),
    "one in seven visits takes 2.5 times as long": (outliers(1 / 7, 2.5, of_best=False), 200, 1),
    "one in four visits of the best takes 10 times as long, 40 configurations": (
        outliers(0.25, 10), 40, 1
    ),
    "one in ten first visits takes twice to five times as long": (cold_start, 200, 1),
}  # fmt: skip
"""Maps a landscape's name to the noise, the number of configurations, and the number of equally
fast configurations. The same number of other configurations is up to 2 % slower."""

HEADING = ["landscape", "group holds the best", "and all within 1 % of it", "leader within 1 %",
           "group, median", "visits a configuration"]  # fmt: skip


def run(name: str, rng: Random) -> tuple[bool, bool, bool, int, float]:
    """Race the configurations of a landscape, and return the figures that `HEADING` names."""
    noise, count, ties = LANDSCAPES[name]
    times = 1 + np.abs(np.expm1(rng.normal(0, SPREAD, count)))
    times[:ties] = 1
    near = times[ties : 2 * ties]
    near[:] = 1 + rng.uniform(0, 0.02, len(near))
    best, margin = int(np.argmin(times)), math.log1p(WITHIN)
    logs = np.full((count, MAX_ROUNDS), np.nan)
    left, visits, memory = np.arange(count), 0, dict[str, Floats]()
    for place in range(MAX_ROUNDS):
        logs[left, place] = np.log(times[left]) + noise(
            Visits(rng, left, best, place, count, memory)
        )
        visits += len(left)
        result = compare(logs[left, : place + 1], margin)
        leader = left[result.leader]
        high, left = result.high[~result.leaves], left[~result.leaves]
        spent = visits >= max(VISITS_EACH * count, MIN_LIMIT) or (high <= margin).all()
        if len(left) == 1 or (spent and place + 1 >= MIN_VISITS):
            break
    holds = np.isin(np.flatnonzero(times <= 1 + WITHIN), left)
    bests = np.isin(np.flatnonzero(times == times.min()), left)
    leads = bool(times[leader] <= (1 + WITHIN) * times.min())
    return bool(bests.any()), bool(holds.all()), leads, len(left), visits / count
