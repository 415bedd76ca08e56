"""How good `gpubench diff` is: its false positives, and the slowdowns that it misses.

    python benchmarks/diff_power.py results/h200/diff_rounds > results/h200/diff_power.md
    python benchmarks/diff_power.py results/h200/diff_rounds --table disturbed > disturbed.md

The directory holds sweeps of one build. A random half of the points, `--half fit`, is for trying
rules; the printed tables are of the other half. Rounds are divided at random between two sides, all
points of a copy alike, so that what a process did to many of its points stays together. Where a
table needs more points than were recorded, recorded points are taken again with another division.

The table `power`: the rate of comparisons of one build that exit 1; the same in a simulation where
one point in ten has two modes 8 % apart; then, with one kernel of six points or more made slower,
the rate of exit 1, the percentage of its points that is found, and the number of other points that
are called slower; then the rate at which a single slowed point is found.

The table `disturbed`: rounds that a neighbour disturbed, and clocks that changed. Its memory-bound
points are recorded sweeps of gemv, gemv_t and atax (`results/h200`), whose rounds are drawn anew
with their own scatter. The half `fit` takes them from gemv.csv, the other half from gemv_t.csv and
atax.csv. `results/h200/diff_disturbed.md` has it.

Below each table stands how often comparisons without a slower point exit 1. The false discovery
rate is 1 %, so at most 1 % of them should. The interval is about divisions of these recorded
rounds.
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from multiprocessing import Pool
from pathlib import Path

from scipy import special
from shared import ROOT, markdown

from gpubench.commands.diff.compare import Key, Limits, PooledPoint, Verdict, compare
from gpubench.commands.diff.sides import read_side

Points = dict[Key, PooledPoint]

MIN_POINTS = 6
"""Minimum number of points of a kernel that is made slower."""

SLOWDOWNS = ((0.05, Limits()), (0.03, Limits()), (0.02, Limits(threshold=0.01)))
SINGLE = 0.05
SHAPES = (
    *itertools.product((3, 5), (100, 300, 1000)),
    *itertools.product((10,), (100, 300)),
)
"""Rounds and points of the table `power`."""

MEMORY_FILES = {"fit": ("gemv.csv",), "judge": ("gemv_t.csv", "atax.csv")}
MEMORY_PERCENT = 85
"""Percentage of the copy bandwidth from which on a recorded point is memory-bound."""

SLOWED_MEMORY = 4
"""Number of memory-bound points that are made slower."""

DISTURBED_POINTS = 300


def recorded(directory: Path, half: str) -> list[Points]:
    """Return the sweeps, with those points of the half that all of them have."""
    sweeps = [read_side([path]).pooled for path in sorted(directory.glob("*.csv*"))]
    rounds = max(len(point.rounds_us) for point in sweeps[0].values())
    complete = [
        key
        for key in sorted(set.intersection(*map(set, sweeps)))
        if all(len(sweep[key].rounds_us) == rounds for sweep in sweeps)
    ]
    random.Random(2006).shuffle(complete)  # noqa: S311 # a division, not a secret
    kept = complete[: len(complete) // 2] if half == "fit" else complete[len(complete) // 2 :]
    return [{key: sweep[key] for key in kept} for sweep in sweeps]


def memory_bound(half: str) -> Points:
    """Return the recorded points that run at the bandwidth of a copy."""
    side = read_side([ROOT / "results" / "h200" / name for name in MEMORY_FILES[half]])
    return {
        key: point
        for key, point in side.pooled.items()
        if (point.percent_of_copy or 0) >= MEMORY_PERCENT
    }


def sides(
    sweeps: list[Points], rounds: int, points: int, rng: random.Random
) -> tuple[Points, Points]:
    """Return two sides of one build, each with `rounds` of the recorded rounds, at random."""
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

    kinds = [(rng.lognormvariate(-6, 0.5), number % 10 == 0) for number in range(points)]
    base, new = (
        {key._replace(m=n): PooledPoint(sweeps_us=(times(*kind),)) for n, kind in enumerate(kinds)}
        for _ in range(2)
    )
    return base, new


def scaled(points: Points, keys: Iterable[Key], factor: float) -> Points:
    """Return the points, those with these keys slower by the factor."""
    changed = {
        key: replace(points[key], sweeps_us=(tuple(factor * t for t in points[key].rounds_us),))
        for key in keys
    }
    return points | changed


def one_kernel(points: Points, rng: random.Random) -> set[Key]:
    """Return the points of one kernel; of repeated points those of one copy."""
    kernels = defaultdict(set)
    for key, point in points.items():
        if not point.is_blas:
            kernels[key.variant, key.layout].add(key)
    return rng.choice([keys for keys in kernels.values() if len(keys) >= MIN_POINTS])


def own_kernels(points: Points, _rng: random.Random) -> set[Key]:
    """Return all points but those of the BLAS."""
    return {key for key, point in points.items() if not point.is_blas}


def one_point(points: Points, rng: random.Random) -> set[Key]:
    """Return one point of an own kernel."""
    return {rng.choice(sorted(own_kernels(points, rng)))}


def slower(base: Points, new: Points, limits: Limits | None = None) -> set[Key]:
    return set(compare(base, new, limits).of(Verdict.SLOWER))


# ---- the table `power`


def power_line(sweeps: list[Points], rounds: int, points: int, repeats: int) -> list[str]:
    """Return a line of the table."""
    rng = random.Random(f"{rounds} {points}")  # noqa: S311 # a division, not a secret
    some_key = next(iter(sweeps[0]))
    pairs: tuple[Callable[[], tuple[Points, Points, Limits]], ...] = (
        lambda: (*sides(sweeps, rounds, points, rng), Limits()),
        lambda: (*sides(sweeps, rounds, points, rng), Limits(threshold=0.01)),
        lambda: (*simulated(some_key, rounds, points, rng), Limits()),
    )
    cells = [str(rounds), str(points)]
    cells += [
        f"{sum(bool(slower(*pair())) for _ in range(repeats))} of {repeats}" for pair in pairs
    ]
    for slowdown, limits in SLOWDOWNS:
        parts, others, exits = [], 0, 0
        for _ in range(repeats):
            base, new = sides(sweeps, rounds, points, rng)
            kernel = one_kernel(new, rng)
            convicted = slower(base, scaled(new, kernel, 1 + slowdown), limits)
            exits += bool(convicted)
            parts.append(len(convicted & kernel) / len(kernel))
            others += len(convicted - kernel)
        cells.append(f"{exits} of {repeats}; {100 * statistics.fmean(parts):.0f} %; {others}")
    hits = 0
    for _ in range(repeats):
        base, new = sides(sweeps, rounds, points, rng)
        single = one_point(new, rng)
        hits += slower(base, scaled(new, single, 1 + SINGLE)) == single
    return [*cells, f"{hits} of {repeats}"]


# ---- the table `disturbed`

Disturb = Callable[[Points, random.Random], Points]


def disturbed(slowdown: float, part: float = 1.0, *, unequal: bool = False) -> Disturb:
    """Return what makes one round slower, at a part of the points, or unequally."""

    def apply(points: Points, rng: random.Random) -> Points:
        place = rng.randrange(len(next(iter(points.values())).rounds_us))
        changed = {}
        for key, point in points.items():
            hit = rng.random() < part
            factor = 1 + slowdown * (2 * rng.random() if unequal else 1.0) * hit
            times = list(point.rounds_us)
            times[place] *= factor
            changed[key] = replace(point, sweeps_us=(tuple(times),))
        return changed

    return apply


def untouched(points: Points, _rng: random.Random) -> Points:
    return points


@dataclass(frozen=True, kw_only=True)
class Case:
    """One line of the table."""

    name: str
    base: Disturb = untouched
    new: Disturb = untouched
    chosen: Callable[[Points, random.Random], set[Key]] | None = None
    """The points that are made slower; None: none."""

    slowdown: float = 0.0
    clock: float = 0.0
    """Relative change of the clock. Products change with it, memory-bound points do not."""

    has_memory_bound: bool = False


def slowed_memory(points: Points, rng: random.Random) -> set[Key]:
    keys = sorted(key for key in points if key.op != "gemm")
    return set(rng.sample(keys, SLOWED_MEMORY))


EVENLY, LESS = disturbed(0.3), disturbed(0.1)
THIRD, UNEQUAL = disturbed(0.3, 1 / 3), disturbed(0.3, unequal=True)

CASES = (
    Case(name="one build"),
    Case(name="one build, a round +30 %", new=EVENLY),
    Case(name="one build, a round of each side +30 %", base=EVENLY, new=EVENLY),
    Case(name="one build, a round +30 % at a third of the points", new=THIRD),
    Case(name="one build, a round +0 to +60 %, by point", new=UNEQUAL),
    Case(name="all own kernels 5 % slower", chosen=own_kernels, slowdown=0.05),
    Case(
        name="all own kernels 5 % slower, a round +10 %",
        new=LESS,
        chosen=own_kernels,
        slowdown=0.05,
    ),
    Case(
        name="all own kernels 5 % slower, a round +30 %",
        new=EVENLY,
        chosen=own_kernels,
        slowdown=0.05,
    ),
    Case(
        name="all own kernels 20 % slower, a round +30 %",
        new=EVENLY,
        chosen=own_kernels,
        slowdown=0.2,
    ),
    Case(
        name="all own kernels 5 % slower, a round of the base +30 %",
        base=EVENLY,
        chosen=own_kernels,
        slowdown=0.05,
    ),
    Case(
        name="one kernel 5 % slower, a round +30 % at a third of the points",
        new=THIRD,
        chosen=one_kernel,
        slowdown=0.05,
    ),
    Case(
        name="one kernel 5 % slower, a round +0 to +60 %, by point",
        new=UNEQUAL,
        chosen=one_kernel,
        slowdown=0.05,
    ),
    Case(name="one point 5 % slower", chosen=one_point, slowdown=0.05),
    Case(name="one point 5 % slower, a round +30 %", new=EVENLY, chosen=one_point, slowdown=0.05),
    Case(name="clock 5 % lower", clock=-0.05, has_memory_bound=True),
    Case(
        name="clock 5 % lower, memory-bound points 7 % slower",
        clock=-0.05,
        has_memory_bound=True,
        chosen=slowed_memory,
        slowdown=0.07,
    ),
    Case(
        name="clock 10 % lower, memory-bound points 10 % slower",
        clock=-0.1,
        has_memory_bound=True,
        chosen=slowed_memory,
        slowdown=0.1,
    ),
    Case(
        name="clock 5 % lower, one kernel 5 % slower",
        clock=-0.05,
        has_memory_bound=True,
        chosen=lambda points, rng: one_kernel(
            {key: point for key, point in points.items() if key.op == "gemm"}, rng
        ),
        slowdown=0.05,
    ),
    Case(name="clock 3 % higher", clock=0.03, has_memory_bound=True),
    Case(name="clock 10 % higher", clock=0.1, has_memory_bound=True),
)


def disturbed_line(
    sweeps: list[Points], memory: Points, case: Case, rounds: int, repeats: int
) -> tuple[list[str], Counter[str]]:
    """Return a line of the table, and how often each point was called slower that was not."""
    rng = random.Random(f"{case.name} {rounds}")  # noqa: S311 # a division, not a secret
    exits, parts, others, same = 0, [], Counter[str](), []
    deviations = standardized(memory)
    for _ in range(repeats):
        base, new = sides(sweeps, rounds, DISTURBED_POINTS, rng)
        if case.clock:
            new = scaled(new, new, 1 / (1 + case.clock))
        if case.has_memory_bound:
            for side in (base, new):
                side |= {k: redrawn(p, deviations, rounds, rng) for k, p in memory.items()}
        new = {
            key: replace(point, clock_mhz=(base[key].clock_mhz or 0.0) * (1 + case.clock))
            for key, point in new.items()
        }
        chosen = case.chosen(new, rng) if case.chosen else set()
        new = case.new(scaled(new, chosen, 1 + case.slowdown), rng)
        base = case.base(base, rng)
        comparison = compare(base, new)
        convicted = set(comparison.of(Verdict.SLOWER))
        exits += bool(convicted)
        parts.append(len(convicted & chosen) / max(1, len(chosen)))
        others.update(f"{key.variant} {key.tile} at {key.m}" for key in convicted - chosen)
        same.append(comparison.counts[Verdict.SAME] / len(base))
    share = f"{100 * statistics.fmean(parts):.0f} %" if case.chosen else ""
    cells = [case.name, str(rounds), f"{exits} of {repeats}", share, str(others.total())]
    return [*cells, f"{100 * statistics.fmean(same):.0f} %"], others


def standardized(memory: Points) -> list[float]:
    """Return all rounds of the points, in standard deviations from their point's mean."""
    values = []
    for point in memory.values():
        logs = [math.log(time_us) for time_us in point.rounds_us]
        middle, spread = statistics.fmean(logs), statistics.stdev(logs)
        wider = spread * math.sqrt((len(logs) - 1) / len(logs))
        values += [(log - middle) / wider for log in logs]
    return values


def redrawn(
    point: PooledPoint, deviations: list[float], rounds: int, rng: random.Random
) -> PooledPoint:
    """Return the point with new rounds, which scatter as its own do."""
    logs = [math.log(time_us) for time_us in point.rounds_us]
    middle, spread = statistics.fmean(logs), statistics.stdev(logs)
    times = (math.exp(middle + spread * rng.choice(deviations)) for _ in range(rounds))
    return replace(point, sweeps_us=(tuple(times),))


# ---- both tables


def false_exits(cells: Iterable[str]) -> str:
    """Return the sum of cells such as `1 of 190`, with its rate and 95 % interval.

    The interval is that of Clopper and Pearson, Biometrika 26 (1934).
    """
    hits, tries = (sum(column) for column in zip(*map(_hits_and_tries, cells), strict=True))
    low = special.betaincinv(hits, tries - hits + 1, 0.025) if hits else 0.0
    high = special.betaincinv(hits + 1, tries - hits, 0.975)
    return f"{hits} of {tries:,} exit 1: {hits / tries:.2%} (95 % interval {low:.2%} to {high:.2%})"


def _hits_and_tries(cell: str) -> tuple[int, int]:
    hits, _, tries = cell.split()
    return int(hits), int(tries)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", type=Path)
    parser.add_argument("--table", choices=("power", "disturbed"), default="power")
    parser.add_argument("--half", choices=("fit", "judge"), default="judge")
    parser.add_argument("--repeats", type=int, default=190)
    asked = parser.parse_args()
    sweeps = recorded(asked.directory, asked.half)
    with Pool() as pool:
        if asked.table == "power":
            pairs = list(itertools.permutations(sweeps, 2))
            exits = sum(bool(slower(base, new)) for base, new in pairs)
            print(
                f"{len(sweeps)} sweeps of one build, {len(sweeps[0])} points of the half called "
                f"'{asked.half}'. Of the {len(pairs)} ordered pairs of whole sweeps {exits} "
                "exit 1.\n"
            )
            heading = ["rounds", "points", "one build", "at 1 %", "bimodal"]
            heading += ["5 % slower", "3 % slower", "2 %, at 1 %", "one point 5 % slower"]
            jobs = [(sweeps, *shape, asked.repeats) for shape in SHAPES]
            table = pool.starmap(power_line, jobs, chunksize=1)
            print(f"{markdown(heading, table)}\n")
            for rounds in dict.fromkeys(rounds for rounds, _ in SHAPES):
                for column in ("one build", "at 1 %"):
                    place = heading.index(column)
                    cells = [line[place] for line in table if line[0] == str(rounds)]
                    print(f"{rounds} rounds, {column}: {false_exits(cells)}.")
        else:
            memory = memory_bound(asked.half)
            print(
                f"{DISTURBED_POINTS} points of the half called '{asked.half}', and "
                f"{len(memory)} memory-bound points where the clock changes. Disturbed rounds "
                "are the new side's, where nothing else is said.\n"
            )
            heading = ["case", "rounds", "exit 1", "slowed points found", "others slower", "same"]
            places = [(case, rounds) for rounds in (5, 3) for case in range(len(CASES))]
            lines = [(sweeps, memory, *place, asked.repeats) for place in places]
            table, others = zip(*pool.starmap(_disturbed_job, lines, chunksize=1), strict=True)
            print(f"{markdown(heading, table)}\n")
            for rounds in (5, 3):
                cells = [
                    line[2]
                    for (case, number), line in zip(places, table, strict=True)
                    if number == rounds and CASES[case].chosen is None
                ]
                print(f"{rounds} rounds, no point slower: {false_exits(cells)}.")
            names = sum(others, Counter[str]()).most_common()
            called = ", ".join(f"{name} ({number})" for name, number in names)
            print(f"Points that were called slower and were not: {called or 'none'}.")
    return 0


def _disturbed_job(
    sweeps: list[Points], memory: Points, number: int, rounds: int, repeats: int
) -> tuple[list[str], Counter[str]]:
    """Take the case by its number: a case holds functions, which processes cannot exchange."""
    return disturbed_line(sweeps, memory, CASES[number], rounds, repeats)


if __name__ == "__main__":
    sys.exit(main())
