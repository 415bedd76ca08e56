"""How good `gpubench fleet` is: what it finds in simulated fleets, and how often it is wrong.

    python benchmarks/fleet_power.py results/h200/diff_rounds > results/h200/fleet_power.md

The noise is recorded. Each unit of a simulated fleet is a point of the sweeps in the directory, of
one build on one H200, that takes at least `--least-us`; each device has some of the rounds of one
of the sweeps, chosen at random, so that what a run did to all its rounds stays with a device. Good
devices differ besides: by a normal factor of standard deviation `--devices`, as of four H200s most
points differed by less than 0.5 % (docs/decisions/0015). One device is slower in one unit, alone
and together.

Columns: the fleets in which that device was found slow in that unit, for each slowdown; then, of
fleets without a slow device, those in which any is called slow; the time of one judgement.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from time import perf_counter

import numpy as np
from shared import markdown, rounds

from gpubench.commands.fleet.judge import Judgement, judge
from gpubench.commands.fleet.units import PHASES, PRODUCTS
from gpubench.results.row import read

SIZES = 8, 64, 1024
SLOWDOWNS = 0.05, 0.10, 0.20
PARTS = 4


def recorded(directory: Path, least_us: float) -> np.ndarray:
    """Logarithms of round medians over their point's median: (points, sweeps, rounds)."""
    sweeps = [
        {row.key: row for row in read(path) if row.median_us and row.median_us >= least_us}
        for path in sorted(directory.glob("*.csv*"))
    ]
    common = sorted(set.intersection(*map(set, sweeps)))
    times = [[rounds(sweep[key]) for sweep in sweeps] for key in common]
    most = max(len(of_sweep) for point in times for of_sweep in point)
    logs = np.log([point for point in times if all(len(one) == most for one in point)])
    return logs - np.median(logs, axis=(1, 2), keepdims=True)


def fleet(
    noise: np.ndarray, devices: int, rounds: int, spread: float, rng: np.random.Generator
) -> np.ndarray:
    """Logarithms of times without a slow device: (devices, units, rounds)."""
    units = len(PHASES) * (len(PRODUCTS["cuda"].dtypes) + PARTS)
    points, sweeps, recorded_rounds = noise.shape
    point = rng.choice(points, units, replace=points < units)[None, :, None]
    sweep = rng.integers(sweeps, size=(devices, units, 1))
    chosen = rng.random((devices, units, recorded_rounds)).argsort(axis=2)[:, :, :rounds]
    return noise[point, sweep, chosen] + rng.normal(0, spread, (devices, units, 1))


def false_alarm(judgement: Judgement) -> bool:
    return bool(judgement.slow.any() or judgement.slower_than_before.any())


def found(times: np.ndarray, slowdown: float, rng: np.random.Generator) -> bool:
    """Whether one device that is slower in one unit is called slow there."""
    device, unit = rng.integers(times.shape[0]), rng.integers(times.shape[1] // len(PHASES))
    slower = times.copy()
    slower[device, unit :: times.shape[1] // len(PHASES)] += np.log1p(slowdown)
    return bool(judge(slower).slow[device, unit :: times.shape[1] // len(PHASES)].any())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--fleets", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--devices", type=float, default=0.0025, help="spread of good devices")
    parser.add_argument("--least-us", type=float, default=100.0)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    noise = recorded(asked.directory, asked.least_us)
    rng = np.random.default_rng(asked.seed)
    print(
        f"{asked.fleets} fleets of each kind, {asked.rounds} rounds; noise of {len(noise)} "
        f"recorded points of at least {asked.least_us:g} µs, devices differ by "
        f"{asked.devices:.2%}.\n"
    )
    lines = []
    for devices in SIZES:
        hits, alarms = np.zeros(len(SLOWDOWNS), int), 0
        spent_s = 0.0
        for _ in range(asked.fleets):
            times = fleet(noise, devices, asked.rounds, asked.devices, rng)
            started = perf_counter()
            alarms += false_alarm(judge(times))
            spent_s += perf_counter() - started
            hits += [found(times, slowdown, rng) for slowdown in SLOWDOWNS]
        rates = (f"{hit / asked.fleets:.1%}" for hit in (*hits, alarms))
        lines.append([devices, *rates, f"{1e3 * spent_s / asked.fleets:.0f} ms"])
    titles = [f"{slowdown:.0%} slower" for slowdown in SLOWDOWNS]
    print(markdown(["devices", *titles, "false alarms", "judged in"], lines))


if __name__ == "__main__":
    main()
