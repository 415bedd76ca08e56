"""Whether `tune`'s race keeps the best: landscapes of known times, and noise of many kinds.

    python benchmarks/tune_simulated.py [--runs 1000] > results/cpu/tune_simulated.md

Each run draws true times of some configurations, and races them by the rule of `gpubench tune`
(`gpubench.stats.race.compare`). Counted are the runs whose group holds the true best, those in
which nothing left that is within 1 % of it, and those whose leader is. The rule was fitted on the
landscapes marked `fit`. Those marked `judge` were written afterwards, and nothing was changed for
them. Needs no GPU. Exits 1 if the groups of a landscape miss the best in over 5 % of the runs.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import Pool
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from shared import markdown, verdict

from gpubench.stats.race import MAX_ROUNDS, MIN_LIMIT, MIN_VISITS, VISITS_EACH, compare

WITHIN, HELD = 0.01, 0.95
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
    """From 0."""

    size: int
    """Number of configurations in the landscape."""

    memory: dict[str, Floats]
    """What a landscape keeps from round to round."""

    def normal(self, deviation: float | Floats) -> Floats:
        """Return normal noise."""
        return self.rng.normal(0, deviation, len(self.numbers))

    def chance(self, probability: float) -> NDArray[np.bool_]:
        """Return which visits something of this probability happens to."""
        return self.rng.random(len(self.numbers)) < probability


Noise = Callable[[Visits], Floats]
"""What the visits of a round add to the logarithms of the times."""


@dataclass(frozen=True, kw_only=True)
class Landscape:
    """Configurations and their noise."""

    noise: Noise
    count: int = 200
    ties: int = 1
    """Number of configurations that are equally fast. As many are up to 2 % slower."""

    kind: str = "fit"


def normal(deviation: float) -> Noise:
    return lambda visits: visits.normal(deviation)


def spiky(part: float, size: float) -> Noise:
    """A part of the visits is slower, by `size` on average."""

    def noise(visits: Visits) -> Floats:
        late = visits.chance(part) * visits.rng.exponential(size, len(visits.numbers))
        return visits.normal(0.005) + late

    return noise


def drift(visits: Visits) -> Floats:
    """A device that becomes 5 % slower while it warms up, and 10 % for a fifth of each round."""
    place = np.linspace(0, 1, len(visits.numbers))[visits.rng.permutation(len(visits.numbers))]
    warm = 0.05 * (1 - np.exp(-(visits.round + place)))
    return visits.normal(0.005) + warm + 0.1 * (place > 0.8)  # noqa: PLR2004 # a fifth of it


def unlike(visits: Visits) -> Floats:
    """Configurations differ in their noise, by up to ten times."""
    widths = visits.memory.setdefault("widths", visits.rng.random(visits.size))
    return visits.normal(0.002 * 10 ** widths[visits.numbers])


def noisy_best(factor: float, deviation: float) -> Noise:
    """The best scatters more than the others."""

    def noise(visits: Visits) -> Floats:
        return visits.normal(np.where(visits.numbers == visits.best, factor, 1.0) * deviation)

    return noise


def bimodal_best(visits: Visits) -> Floats:
    """Half of the best's visits are 8 % slower."""
    slow = visits.chance(0.5) & (visits.numbers == visits.best)
    return np.asarray(visits.normal(0.005) + 0.08 * slow)


def loud_ten(visits: Visits) -> Floats:
    """One configuration in twenty has noise of 2 %, the best too; the others 0.2 %."""
    loud = visits.numbers % 20 == visits.best % 20
    return visits.normal(np.where(loud, 0.02, 0.002))


def lasting(deviation: float, processes: int = MAX_ROUNDS) -> Noise:
    """Offsets that last a process; a round is a process, up to `processes`."""

    def noise(visits: Visits) -> Floats:
        name = f"{min(visits.round, processes)}"
        offsets = visits.memory.setdefault(name, visits.rng.normal(0, deviation, visits.size))
        return visits.normal(0.003) + offsets[visits.numbers]

    return noise


# Invented after the rule was fitted.


def busy_neighbour(visits: Visits) -> Floats:
    """Another program slows a random stretch of each second round, by 5 to 40 %."""
    size = len(visits.numbers)
    order = visits.rng.permutation(size)
    hit = (order < size * 0.4) & (visits.round % 2 == 1)
    return visits.normal(0.004) + hit * visits.rng.uniform(0.05, 0.4)


def throttled(visits: Visits) -> Floats:
    """In half of the rounds heat slows each configuration, by a factor of its own up to 6 %."""
    heat = visits.memory.setdefault("heat", visits.rng.uniform(0, 0.06, visits.size))
    hot = visits.rng.random() < 0.5  # noqa: PLR2004 # a half
    return visits.normal(0.004) + hot * heat[visits.numbers]


def skewed(visits: Visits) -> Floats:
    """Scatter is log-normal and one-sided, and each configuration's differs: 0.1 to 5 %."""
    widths = visits.memory.setdefault("widths", 0.001 * 50 ** visits.rng.random(visits.size))
    return widths[visits.numbers] * (visits.rng.lognormal(0, 1, len(visits.numbers)) - 1)


# Invented when the race had its final form.


def stepped(visits: Visits) -> Floats:
    """Six in ten visits take the typical time, the others one or two steps of 1 % more."""
    return visits.rng.choice([0.0, 0.01, 0.02], p=[0.6, 0.3, 0.1], size=len(visits.numbers))


def three_clocks(visits: Visits) -> Floats:
    """A round runs at one of three clocks, and configurations depend on it by a third to all."""
    depends = visits.memory.setdefault("depends", visits.rng.uniform(1 / 3, 1, visits.size))
    slower = visits.rng.choice([0.0, 0.04, 0.09])
    return np.asarray(visits.normal(0.004) + slower * depends[visits.numbers])


def unlike_spikes(visits: Visits) -> Floats:
    """Up to 30 % of a configuration's visits are slower, by 10 % on average."""
    parts = visits.memory.setdefault("parts", visits.rng.uniform(0, 0.3, visits.size))
    size = len(visits.numbers)
    late = (visits.rng.random(size) < parts[visits.numbers]) * visits.rng.exponential(0.1, size)
    return np.asarray(visits.normal(0.004) + late)


LANDSCAPES: dict[str, Landscape] = {
    "normal noise of 0.2 %": Landscape(noise=normal(0.002)),
    "normal noise of 0.5 %": Landscape(noise=normal(0.005)),
    "1,000 configurations": Landscape(noise=normal(0.005), count=1000),
    "8 configurations": Landscape(noise=normal(0.005), count=8),
    "20 equally fast, 20 up to 2 % slower": Landscape(noise=normal(0.005), ties=20),
    "all 50 equally fast": Landscape(noise=normal(0.005), count=50, ties=50),
    "noise of 3 %": Landscape(noise=normal(0.03)),
    "Student's t, 2 degrees of freedom": Landscape(
        noise=lambda v: 0.005 * v.rng.standard_t(2, len(v.numbers))
    ),
    "slower by the absolute value of Cauchy's": Landscape(
        noise=lambda v: 0.003 * np.abs(v.rng.standard_cauchy(len(v.numbers)))
    ),
    "5 % of visits 20 % slower": Landscape(noise=spiky(0.05, 0.2)),
    "10 % of visits 50 % slower": Landscape(noise=spiky(0.1, 0.5)),
    "noise of 0.2 to 2 %, by configuration": Landscape(noise=unlike),
    "drift of 5 %, and bursts of 10 %": Landscape(noise=drift),
    "drift and bursts, 20 equally fast": Landscape(noise=drift, ties=20),
    "the best has 10 times the noise of 0.5 %": Landscape(noise=noisy_best(10, 0.005)),
    "the best has 10 times the noise of 0.2 %": Landscape(noise=noisy_best(10, 0.002)),
    "the best is 8 % slower in half of its visits": Landscape(noise=bimodal_best),
    "noise of 2 % in ten of 200, the best among them": Landscape(noise=loud_ten),
    "offsets of 1 % that last a process": Landscape(noise=lasting(0.01)),
    "offsets of 3 % that last a process": Landscape(noise=lasting(0.03)),
    "a neighbour slows part of each second round": Landscape(noise=busy_neighbour, kind="judge"),
    "heat slows each by up to 6 % in half of the rounds": Landscape(noise=throttled, kind="judge"),
    "one-sided noise of 0.1 to 5 %, by configuration": Landscape(noise=skewed, kind="judge"),
    "visits take 0, 1 or 2 % more": Landscape(noise=stepped, kind="judge"),
    "rounds at three clocks, on which each depends differently": Landscape(
        noise=three_clocks, kind="judge"
    ),
    "up to 30 % of visits 10 % slower, by configuration": Landscape(
        noise=unlike_spikes, kind="judge"
    ),
}


class Counted(NamedTuple):
    """What a race is counted for."""

    holds_best: bool
    holds_near: bool
    leader_near: bool
    group: int
    rounds: int
    visits_each: float


def run(name: str, seed: int) -> Counted:
    """Race a landscape."""
    landscape = LANDSCAPES[name]
    count, rng = landscape.count, np.random.default_rng(seed)
    times = 1 + np.abs(np.expm1(rng.normal(0, SPREAD, count)))
    times[: landscape.ties] = 1
    near = times[landscape.ties : 2 * landscape.ties]
    near[:] = 1 + rng.uniform(0, 0.02, len(near))
    best, margin = int(np.argmin(times)), math.log1p(WITHIN)
    logs = np.full((count, MAX_ROUNDS), np.nan)
    left, visits, memory = np.arange(count), 0, dict[str, Floats]()
    for place in range(MAX_ROUNDS):
        added = landscape.noise(Visits(rng, left, best, place, count, memory))
        logs[left, place] = np.log(times[left]) + added
        visits += len(left)
        result = compare(logs[left, : place + 1], margin)
        leader = left[result.leader]
        high, left = result.high[~result.leaves], left[~result.leaves]
        settled = place + 1 >= MIN_VISITS
        spent = visits >= max(VISITS_EACH * count, MIN_LIMIT) or (high <= margin).all()
        if len(left) == 1 or (spent and settled):
            break
    holds = np.isin(np.flatnonzero(times <= 1 + WITHIN), left)
    bests = np.isin(np.flatnonzero(times == times.min()), left)
    return Counted(
        bool(bests.any()),
        bool(holds.all()),
        bool(times[leader] <= (1 + WITHIN) * times.min()),
        len(left),
        place + 1,
        visits / count,
    )


def line(name: str, runs: int) -> tuple[float, list[str]]:
    """Return the rate of groups that hold the best, and the line of the table."""
    results = [run(name, seed) for seed in range(runs)]
    *hits, group, rounds, visits = zip(*results, strict=True)
    rates = [sum(column) / runs for column in hits]
    middle = (f"{statistics.median(column):g}" for column in (group, rounds))
    shown = (f"{rate:.1%}" for rate in rates)
    cells = [name, LANDSCAPES[name].kind, *shown, *middle, f"{np.mean(visits):.1f}"]
    return rates[0], cells


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--runs", type=int, default=1000)
    asked = parser.parse_args()
    with Pool() as pool:
        jobs = [(name, asked.runs) for name in LANDSCAPES]
        rates, lines = zip(*pool.starmap(line, jobs, chunksize=1), strict=True)
    heading = ["landscape", "used to", "group holds the best", "and all within 1 % of it"]
    heading += ["leader within 1 %", "group, median", "rounds, median", "visits a configuration"]
    print(f"{markdown(heading, list(lines))}\n")
    what = f"the group holds the best in at least {HELD:.0%} of {asked.runs:,} runs: "
    return int(not verdict(min(rates) >= HELD, what + f"{min(rates):.1%}"))


if __name__ == "__main__":
    sys.exit(main())
