"""How good `gpubench fleet` is: what it finds in simulated fleets, and how often it is wrong.

    python benchmarks/fleet_power.py results/h200/diff_rounds > results/h200/fleet_power.md
    python benchmarks/fleet_power.py --calibrate

The noise of rounds is recorded. Each unit of a simulated fleet is a point of the sweeps in the
directory, of one build on one H200, that takes at least `--least-us`. Each device has some rounds
of one of the sweeps, at random, so that what a run did to all its rounds stays with a device.
Good devices differ besides by a factor of their own. One device is slower in one unit, alone and
together.

Columns: the fleets in which the slow device was found in that unit, for each slowdown; of fleets
without a slow device, those in which any is called slow; the median smallest slowdown that the
output reports as detectable; and, of the fleets whose output reports that 10 % is detectable in
that unit, those in which the device 10 % slow was found.

The limits were fitted to Student's t with 3 degrees of freedom, without rounds (`--calibrate`
prints them). The lines with recorded rounds, and with the spreads marked `judge`, were not used.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import numpy as np
from shared import markdown, rounds

from gpubench.commands.fleet.judge import MIN_OTHERS, Judgement, judge, spread_of
from gpubench.commands.fleet.units import PHASES, PRODUCTS
from gpubench.results.row import read

SIZES = 4, 8, 64
SLOWDOWNS = 0.05, 0.10, 0.20
TEN = 0.10
WIDE_PART = 0.05
PARTS = 4
UNITS = len(PHASES) * (len(PRODUCTS["cuda"].dtypes) + PARTS)

Random = np.random.Generator
Draw = Callable[[Random, tuple[int, ...]], np.ndarray]

SPREADS: dict[str, tuple[Draw, str]] = {
    "normal, 0.25 %": (lambda rng, shape: 0.0025 * rng.standard_normal(shape), "fit"),
    "t with 3 degrees of freedom, 0.25 %": (
        lambda rng, shape: 0.0025 * rng.standard_t(3, shape),
        "fit",
    ),
    "t with 3 degrees of freedom, 0.5 %": (
        lambda rng, shape: 0.005 * rng.standard_t(3, shape),
        "fit",
    ),
    "normal, 2 %": (lambda rng, shape: 0.02 * rng.standard_normal(shape), "judge"),
    "Laplace, 0.5 %": (lambda rng, shape: rng.laplace(0, 0.005, shape), "judge"),
    "one in twenty 10 times as wide as 0.25 %": (
        lambda rng, shape: (
            0.0025 * rng.standard_normal(shape) * np.where(rng.random(shape) < WIDE_PART, 10, 1)
        ),
        "judge",
    ),
}
"""What good devices differ by, and whether limits were fitted to it."""


def recorded(directory: Path, least_us: float) -> np.ndarray:
    """Return logarithms of round medians over their point's median: (points, sweeps, rounds)."""
    sweeps = [
        {row.key: row for row in read(path) if row.median_us and row.median_us >= least_us}
        for path in sorted(directory.glob("*.csv*"))
    ]
    common = sorted(set.intersection(*map(set, sweeps)))
    times = [[rounds(sweep[key]) for sweep in sweeps] for key in common]
    most = max(len(of_sweep) for point in times for of_sweep in point)
    logs = np.log([point for point in times if all(len(one) == most for one in point)])
    return logs - np.median(logs, axis=(1, 2), keepdims=True)


def fleet(noise: np.ndarray, devices: int, rounds: int, spread: Draw, rng: Random) -> np.ndarray:
    """Return logarithms of times without a slow device: (devices, units, rounds)."""
    points, sweeps, recorded_rounds = noise.shape
    point = rng.choice(points, UNITS, replace=points < UNITS)[None, :, None]
    sweep = rng.integers(sweeps, size=(devices, UNITS, 1))
    chosen = rng.random((devices, UNITS, recorded_rounds)).argsort(axis=2)[:, :, :rounds]
    # A device differs alone as it does together.
    own = np.tile(spread(rng, (devices, UNITS // len(PHASES), 1)), (1, len(PHASES), 1))
    return np.asarray(noise[point, sweep, chosen] + own)


def false_alarm(judgement: Judgement) -> bool:
    return bool(judgement.slow.any() or judgement.slower_than_before.any())


def found(times: np.ndarray, slowdown: float, rng: Random) -> tuple[bool, bool]:
    """Return whether a device slower in one unit is called slow there, and whether it can be."""
    device, unit = rng.integers(times.shape[0]), rng.integers(times.shape[1] // len(PHASES))
    phases = slice(unit, None, times.shape[1] // len(PHASES))
    slower = times.copy()
    slower[device, phases] += np.log1p(slowdown)
    judgement = judge(slower)
    detectable = judgement.detectable[phases].min() <= np.log1p(slowdown)
    return bool(judgement.slow[device, phases].any()), bool(detectable)


def calibrate() -> None:
    """Print the tail of the distance from the others, by the number of others."""
    rng = np.random.default_rng(11)
    for others in (MIN_OTHERS, 4, 5, 6, 7, 11, 15, 16, 31, 63):
        values = rng.standard_t(3, (max(200_000, 4_000_000 // others), others + 1))
        distance = values[:, 0] - np.median(values[:, 1:], axis=1)
        distance /= spread_of(values[:, 1:])
        p = np.array([0.05 / (2 * (others + 1)), 0.05 / (32 * (others + 1))])
        far = np.quantile(distance, 1 - p)
        power = np.log(p[0] / p[1]) / np.log(far[1] / far[0])
        print(f"{others}: ({far[0] * p[0] ** (1 / power):.3g}, {power:.3g}),")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("directory", type=Path, nargs="?")
    parser.add_argument("--calibrate", action="store_true")
    parser.add_argument("--fleets", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--least-us", type=float, default=100.0)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    if asked.calibrate or asked.directory is None:
        calibrate()
        return
    noise = recorded(asked.directory, asked.least_us)
    rng = np.random.default_rng(asked.seed)
    print(
        f"{asked.fleets} fleets of each kind, {asked.rounds} rounds; noise of {len(noise)} "
        f"recorded points of at least {asked.least_us:g} µs.\n"
    )
    lines = []
    for name, (spread, kind) in SPREADS.items():
        for devices in SIZES:
            hits, alarms, can, found_where_it_can = np.zeros(len(SLOWDOWNS), int), 0, 0, 0
            spent_s, least = 0.0, []
            for _ in range(asked.fleets):
                times = fleet(noise, devices, asked.rounds, spread, rng)
                started = perf_counter()
                judgement = judge(times)
                spent_s += perf_counter() - started
                alarms += false_alarm(judgement)
                least.append(np.median(judgement.detectable))
                for place, slowdown in enumerate(SLOWDOWNS):
                    hit, detectable = found(times, slowdown, rng)
                    hits[place] += hit
                    if slowdown == TEN:
                        can += detectable
                        found_where_it_can += hit and detectable
            rates = (f"{count / asked.fleets:.1%}" for count in (*hits, alarms))
            *shown, alarm = rates
            where = f"{found_where_it_can} of {can}" if can else "none"
            detectable_percent = f"{np.expm1(np.median(least)):.1%}"
            cells = [devices, name, kind, *shown, alarm, detectable_percent, where]
            lines.append([*cells, f"{1e3 * spent_s / asked.fleets:.0f} ms"])
    titles = [f"{slowdown:.0%} slower" for slowdown in SLOWDOWNS]
    heading = ["devices", "good devices differ by", "used to", *titles, "false alarms"]
    heading += ["detectable", "10% slower, where detectable", "judged in"]
    print(markdown(heading, lines))


if __name__ == "__main__":
    main()
