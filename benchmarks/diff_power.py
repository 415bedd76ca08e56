"""How good `gpubench diff` is: its false positives, and the slowdowns that it misses.

    python benchmarks/diff_power.py results/h200/diff_rounds > results/h200/diff_power.md

The directory holds sweeps of one build. Every other point is for trying rules, with `--half fit`;
what is printed by default is of the others. Rounds are divided at random between two sides, all
points of a copy alike, so that what a process did to many of its points stays together. Where more
points are asked for than were recorded, they are recorded ones again, with a division of their own.

Columns: the rate of comparisons of one build that exit 1; the same in a simulation where one point
in ten has two modes 8 % apart; then, with one kernel of six points or more made slower, the rate
of exit 1, the percentage of its points that is found, and how many others are called slower.
"""

from __future__ import annotations

import argparse
import itertools
import random
import statistics
import sys
from collections import defaultdict
from dataclasses import replace
from multiprocessing import Pool
from pathlib import Path

from shared import markdown

from gpubench.commands.diff.compare import Key, Limits, PooledPoint, Verdict, compare
from gpubench.commands.diff.sides import read_side

Points = dict[Key, PooledPoint]

LEAST_POINTS = 6
"""Of a kernel that is made slower."""

SLOWDOWNS = ((0.05, Limits()), (0.03, Limits()), (0.02, Limits(threshold=0.01)))
ROUNDS, SIZES = (3, 5, 10), (100, 300, 1000)


def recorded(directory: Path, half: str) -> list[Points]:
    """The sweeps, with those points of the half that all of them have."""
    sweeps = [read_side([path]).pooled for path in sorted(directory.glob("*.csv*"))]
    rounds = max(len(point.rounds_us) for point in sweeps[0].values())
    complete = [
        key
        for key in sorted(set.intersection(*map(set, sweeps)))
        if all(len(sweep[key].rounds_us) == rounds for sweep in sweeps)
    ]
    kept = complete[half == "judge" :: 2]
    return [{key: sweep[key] for key in kept} for sweep in sweeps]


def sides(
    sweeps: list[Points], rounds: int, points: int, rng: random.Random
) -> tuple[Points, Points]:
    """Two sides of one build: so many of the recorded rounds each, divided at random."""
    base: Points = {}
    new: Points = {}
    for copy in itertools.count():
        all_rounds = {
            key: tuple(itertools.chain.from_iterable(sweep[key].rounds_us for sweep in sweeps))
            for key in rng.sample(list(sweeps[0]), min(points - len(base), len(sweeps[0])))
        }
        places = rng.sample(range(len(next(iter(all_rounds.values())))), 2 * rounds)
        for key, times in all_rounds.items():
            for side, chosen in ((base, places[:rounds]), (new, places[rounds:])):
                point = replace(sweeps[0][key], sweeps_us=(tuple(times[i] for i in chosen),))
                side[key._replace(layout=f"copy {copy}")] = point
        if len(base) == points:
            return base, new
    raise AssertionError


def simulated(key: Key, rounds: int, points: int, rng: random.Random) -> tuple[Points, Points]:
    """Rounds that scatter by 0.1 to 0.6 % (nine in ten points), one point in ten with two modes."""

    def times(spread: float, bimodal: bool) -> tuple[float, ...]:
        modes = (1.0, 1.08) if bimodal else (1.0,)
        return tuple(100 * rng.choice(modes) * rng.lognormvariate(0, spread) for _ in range(rounds))

    of_points = [(rng.lognormvariate(-6, 0.5), number % 10 == 0) for number in range(points)]
    base, new = (
        {key._replace(m=n): PooledPoint(sweeps_us=(times(*of),)) for n, of in enumerate(of_points)}
        for _ in range(2)
    )
    return base, new


def slowed(points: Points, slowdown: float, rng: random.Random) -> tuple[Points, set[Key]]:
    """The points, those of one kernel slower; of repeated points those of one copy."""
    kernels = defaultdict(set)
    for key, point in points.items():
        if not point.is_blas:
            kernels[key.variant, key.layout].add(key)
    kernel = rng.choice([keys for keys in kernels.values() if len(keys) >= LEAST_POINTS])
    factor = 1 + slowdown
    changed = {
        key: replace(points[key], sweeps_us=(tuple(factor * t for t in points[key].rounds_us),))
        for key in kernel
    }
    return points | changed, kernel


def slower(base: Points, new: Points, limits: Limits | None = None) -> set[Key]:
    return set(compare(base, new, limits).of(Verdict.SLOWER))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", type=Path)
    parser.add_argument("--half", choices=("fit", "judge"), default="judge")
    parser.add_argument("--repeats", type=int, default=190)
    asked = parser.parse_args()
    sweeps = recorded(asked.directory, asked.half)
    pairs = list(itertools.permutations(sweeps, 2))
    exits = sum(bool(slower(base, new)) for base, new in pairs)
    print(
        f"{len(sweeps)} sweeps of one build, {len(sweeps[0])} points of the half called "
        f"'{asked.half}'. Of the {len(pairs)} ordered pairs of whole sweeps {exits} exit 1.\n"
    )
    heading = ["rounds", "points", "one build", "at 1 %", "bimodal", "5 % slower", "3 % slower"]
    shapes = itertools.product(ROUNDS, SIZES)
    with Pool() as pool:
        lines = pool.starmap(line, [(sweeps, *shape, asked.repeats) for shape in shapes])
    print(markdown([*heading, "2 %, at 1 %"], lines))
    return 0


def line(sweeps: list[Points], rounds: int, points: int, repeats: int) -> list[str]:
    """Of the table."""
    rng = random.Random(f"{rounds} {points}")  # noqa: S311 # a division, not a secret
    some_key = next(iter(sweeps[0]))
    pairs = (
        lambda: (*sides(sweeps, rounds, points, rng), Limits()),
        lambda: (*sides(sweeps, rounds, points, rng), Limits(threshold=0.01)),
        lambda: (*simulated(some_key, rounds, points, rng), Limits()),
    )
    cells = [str(rounds), str(points)]
    cells += [
        f"{sum(bool(slower(*pair())) for _ in range(repeats))} of {repeats}" for pair in pairs
    ]
    for slowdown, limits in SLOWDOWNS:
        found, others, exits = [], 0, 0
        for _ in range(repeats):
            base, new = sides(sweeps, rounds, points, rng)
            new, wanted = slowed(new, slowdown, rng)
            convicted = slower(base, new, limits)
            exits += bool(convicted)
            found.append(len(convicted & wanted) / len(wanted))
            others += len(convicted - wanted)
        cells.append(f"{exits} of {repeats}; {100 * statistics.fmean(found):.0f} %; {others}")
    return cells


if __name__ == "__main__":
    sys.exit(main())
