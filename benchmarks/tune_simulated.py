"""Whether `tune`'s race keeps the best: landscapes of known times, and noise of many kinds.

    python benchmarks/tune_simulated.py [--runs 1000]

Each run draws times of some configurations, and races them as `gpubench tune` does, with visits
that are disturbed. Counted are the runs whose group holds the true best, those in which nothing
left that is within 1 % of it, and those whose winner is. Needs no GPU, and minutes of all cores.
Exits 1 if the groups of a landscape miss the best in over 5 % of the runs.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Callable
from functools import partial
from multiprocessing import Pool

import numpy as np
from shared import markdown, verdict

from gpubench.stats.race import Race

WITHIN, HELD = 0.01, 0.95
SPREAD = 0.5
"""Standard deviation of the logarithm of the configurations' true times."""

Random = np.random.Generator
Noise = Callable[[Random, int, float], float]
"""(generator, configuration, how many rounds' visits have passed) → what a visit adds to the
logarithm of the time."""


def spiky(part: float, size: float) -> Noise:
    """A part of the visits is slower, by `size` on the average."""
    return lambda rng, _, __: (
        rng.normal(0, 0.005) + (rng.exponential(size) if rng.random() < part else 0.0)
    )


def drift(rng: Random, _number: int, time: float) -> float:
    """A device that becomes 5 % slower while it warms up, and 10 % for a time in each round."""
    burst = time % 1 > 0.8  # noqa: PLR2004 # a fifth of it
    return rng.normal(0, 0.005) + 0.05 * (1 - math.exp(-time)) + 0.1 * burst


def unlike(rng: Random, number: int, _time: float) -> float:
    """Configurations differ in their noise, by up to ten times."""
    return rng.normal(0, 0.002 * 10 ** np.random.default_rng(number).random())


def normal(deviation: float) -> Noise:
    return lambda rng, _, __: rng.normal(0, deviation)


LANDSCAPES: dict[str, tuple[Noise, int, int]] = {
    "normal noise of 0.2 %": (normal(0.002), 200, 1),
    "normal noise of 0.5 %": (normal(0.005), 200, 1),
    "1,000 configurations": (normal(0.005), 1000, 1),
    "8 configurations": (normal(0.005), 8, 1),
    "20 equally fast, 20 up to 2 % slower": (normal(0.005), 200, 20),
    "all 50 equally fast": (normal(0.005), 50, 50),
    "noise of 3 %": (normal(0.03), 200, 1),
    "Student's t, 2 degrees of freedom": (lambda rng, _, __: 0.005 * rng.standard_t(2), 200, 1),
    "slower by the absolute value of Cauchy's": (
        *(lambda rng, _, __: 0.003 * abs(rng.standard_cauchy()), 200, 1),
    ),
    "5 % of visits 20 % slower": (spiky(0.05, 0.2), 200, 1),
    "10 % of visits 50 % slower": (spiky(0.1, 0.5), 200, 1),
    "noise of 0.2 to 2 %, by configuration": (unlike, 200, 1),
    "drift of 5 %, and bursts of 10 %": (drift, 200, 1),
    "drift and bursts, 20 equally fast": (drift, 200, 20),
}
"""Noise, number of configurations, and how many are equally fast: so many more are up to 2 %
slower."""


def run(name: str, seed: int) -> tuple[bool, bool, bool, int, int, float]:
    """Race a landscape: what is counted, size of the group, rounds, visits a configuration."""
    noise, count, ties = LANDSCAPES[name]
    rng = np.random.default_rng(seed)
    times = 1 + np.abs(np.expm1(rng.normal(0, SPREAD, count)))
    times[:ties] = 1
    near = times[ties : 2 * ties]
    near[:] = 1 + rng.uniform(0, 0.02, len(near))
    race = Race(count, WITHIN, seed)
    race.enter(count)
    visits = 0
    while not race.over:
        for number in tuple(race.waiting):
            race.add(number, times[number] * math.exp(noise(rng, number, visits / count)))
            visits += 1
        race.judge()
    best, close = (
        {int(number) for number in np.flatnonzero(times <= limit)}
        for limit in (times.min(), 1 + WITHIN)
    )
    won = race.leader in close
    left = race.racing
    return bool(left & best), close <= left, won, len(left), race.round - 1, visits / count


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--runs", type=int, default=1000)
    asked = parser.parse_args()
    lines, least = [], 1.0
    with Pool() as pool:
        for name in LANDSCAPES:
            results = pool.map(partial(run, name), range(asked.runs), chunksize=10)
            *counted, group, rounds, visits = zip(*results, strict=True)
            rates = [sum(of) / asked.runs for of in counted]
            least = min(least, rates[0])
            middle = (f"{statistics.median(of):g}" for of in (group, rounds))
            lines.append(
                [name, *(f"{rate:.1%}" for rate in rates), *middle, f"{np.mean(visits):.1f}"]
            )
    heading = ["landscape", "group holds the best", "and all within 1 % of it"]
    heading += ["winner within 1 %", "group, median", "rounds, median", "visits a configuration"]
    print(f"{markdown(heading, lines)}\n")
    what = f"the group holds the best in at least {HELD:.0%} of {asked.runs:,} runs: {least:.1%}"
    return int(not verdict(least >= HELD, what))


if __name__ == "__main__":
    sys.exit(main())
