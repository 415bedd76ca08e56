"""How good `gpubench fleet` is: what it finds in simulated fleets, and how often it is wrong.

    python benchmarks/fleet_power.py results/h200/diff_rounds > results/h200/fleet_power.md
    python benchmarks/fleet_power.py --calibrate

The noise of rounds is recorded. Each unit of a simulated fleet is a point of the sweeps in the
directory, of one build on one H200, that takes at least `--least-us`. Each device has some rounds
of one of the sweeps, at random, so that what a run did to all its rounds stays with a device.
Good devices differ besides by a factor of their own. One device is slower in one unit, alone and
together.

Columns:

- 5, 10 and 20 % slower: fleets in which that device was called slow in that unit.
- called slow: fleets without a slowed device in which any device is called slow.
- false alarms: those of them in which a device is called slow in a unit where its own factor is at
  most the threshold above the median of the others. A device beyond the threshold is slow.
- detectable: median of the slowdown that the output reports as detectable, without a slowed device.
- promised: fleets whose output, without a slowed device, reports that 10 % is detectable in the
  unit; and those of them in which the device that became 10 % slower was called slow.
- reported: the same, by the output about the fleet with that device.

The limits were fitted to Student's t with 3 degrees of freedom, without rounds (`--calibrate`
prints them). The rule was tried on the spreads and sizes marked `judge`: those with 40 and 64
devices decided when spreads count as normal. Those marked `afterwards` were invented when the rule
was final.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special
from shared import markdown, rounds

from gpubench.commands.fleet.judge import MIN_OTHERS, Limits, judge, spread_of
from gpubench.commands.fleet.units import PHASES, PRODUCTS
from gpubench.results.row import read

SLOWDOWNS = 0.05, 0.10, 0.20
TEN = SLOWDOWNS.index(0.10)
PARTS = 4
UNITS = len(PRODUCTS["cuda"].dtypes) + PARTS

Random = np.random.Generator
Floats = NDArray[np.float64]
Spread = Callable[[Random, int], Floats]
"""Draws the logarithms of the factors of good devices, of shape (devices, units)."""


def normal(deviation: float) -> Spread:
    return lambda rng, devices: deviation * rng.standard_normal((devices, UNITS))


def student(scale: float) -> Spread:
    return lambda rng, devices: scale * rng.standard_t(3, (devices, UNITS))


def laplace(rng: Random, devices: int) -> Floats:
    return rng.laplace(0, 0.005, (devices, UNITS))


def contaminated(rng: Random, devices: int) -> Floats:
    """One factor in twenty is ten times as wide."""
    wide = rng.random((devices, UNITS)) < 0.05  # noqa: PLR2004 # one in twenty
    return 0.0025 * rng.standard_normal((devices, UNITS)) * np.where(wide, 10, 1)


def two_boards(rng: Random, devices: int) -> Floats:
    """Devices are of two boards, which are 1 % apart in all units."""
    board = rng.integers(2, size=(devices, 1))
    return 0.01 * board + 0.002 * rng.standard_normal((devices, UNITS))


def one_sided(rng: Random, devices: int) -> Floats:
    """Devices are slower than the best by an exponential of 0.5 % on average."""
    return rng.exponential(0.005, (devices, UNITS))


def unlike_units(rng: Random, devices: int) -> Floats:
    """Units differ in their spread, from 0.1 to 2 %; units of a device have a part in common."""
    width = 0.001 * 20 ** rng.random((1, UNITS))
    common = 0.5 * rng.standard_normal((devices, 1))
    return width * (common + rng.standard_t(5, (devices, UNITS)))


# Invented when the rule was final.


def racks(rng: Random, devices: int) -> Floats:
    """Devices are slower the higher they stand in their rack, by up to 1.5 %, in all units."""
    place = rng.random((devices, 1))
    return 0.015 * place + 0.003 * rng.standard_normal((devices, UNITS))


def skewed(rng: Random, devices: int) -> Floats:
    """Devices are slower by log-normal factors: 0.3 % in the median, over 1.1 % one in twenty."""
    return 0.003 * rng.lognormal(0, 0.8, (devices, UNITS))


FITTED, LATER, LAST = (4, 8, 64), (5, 12, 40), (6, 20, 70)
"""Numbers of devices."""

SPREADS: tuple[tuple[str, Spread, str, tuple[int, ...]], ...] = (
    ("normal, 0.25 %", normal(0.0025), "fit", FITTED),
    ("t with 3 degrees of freedom, 0.25 %", student(0.0025), "fit", FITTED),
    ("t with 3 degrees of freedom, 0.5 %", student(0.005), "fit", FITTED),
    ("normal, 2 %", normal(0.02), "judge", FITTED),
    ("Laplace, 0.5 %", laplace, "judge", FITTED),
    ("one in twenty 10 times as wide as 0.25 %", contaminated, "judge", FITTED),
    ("normal, 0.2 %, on two boards 1 % apart", two_boards, "judge", LATER),
    ("exponential, 0.5 %", one_sided, "judge", LATER),
    ("t with 5 degrees of freedom, 0.1 to 2 % by unit", unlike_units, "judge", LATER),
    ("normal, 0.3 %, and up to 1.5 % by the place in a rack", racks, "afterwards", LAST),
    ("log-normal, median 0.3 %", skewed, "afterwards", LAST),
)
"""What good devices differ by, what the spread was used for, and the numbers of devices."""


def recorded(directory: Path, least_us: float) -> Floats:
    """Return logarithms of round medians over their point's median: (points, sweeps, rounds)."""
    sweeps = [
        {row.key: row for row in read(path) if row.median_us and row.median_us >= least_us}
        for path in sorted(directory.glob("*.csv*"))
    ]
    common = sorted(set.intersection(*map(set, sweeps)))
    times = [[rounds(sweep[key]) for sweep in sweeps] for key in common]
    most = max(len(of_sweep) for point in times for of_sweep in point)
    logs = np.log([point for point in times if all(len(one) == most for one in point)])
    return np.asarray(logs - np.median(logs, axis=(1, 2), keepdims=True))


def fleet(noise: Floats, own: Floats, rounds: int, rng: Random) -> Floats:
    """Return logarithms of times without a slowed device: (devices, units and phases, rounds).

    `own` has the logarithms of the devices' factors. A device differs alone as it does together.
    """
    points, sweeps, recorded_rounds = noise.shape
    shape = len(own), UNITS * len(PHASES)
    point = rng.choice(points, shape[1], replace=points < shape[1])[None, :, None]
    sweep = rng.integers(sweeps, size=(*shape, 1))
    chosen = rng.random((*shape, recorded_rounds)).argsort(axis=2)[:, :, :rounds]
    return np.asarray(noise[point, sweep, chosen] + np.tile(own, len(PHASES))[:, :, None])


def truly_slow(own: Floats) -> NDArray[np.bool_]:
    """Return where a device is beyond the threshold of the median of the others."""
    others = [np.median(np.delete(own, device, axis=0), axis=0) for device in range(len(own))]
    return np.asarray(own - np.array(others) > np.log1p(Limits().threshold))


def line(
    noise: Floats, spread: Spread, devices: int, fleets: int, rounds: int, rng: Random
) -> list[str]:
    """Return the figures of a line of the table."""
    hits = np.zeros(len(SLOWDOWNS), int)
    called = alarms = promised = kept = reported = true = 0
    detectable = []
    for _ in range(fleets):
        own = spread(rng, devices)
        times = fleet(noise, own, rounds, rng)
        healthy = judge(times)
        called += bool(healthy.slow.any())
        alarms += bool((healthy.slow & ~np.tile(truly_slow(own), len(PHASES))).any())
        detectable.append(np.median(healthy.detectable))
        device, unit = rng.integers(devices), rng.integers(UNITS)
        phases = slice(unit, None, UNITS)
        for place, slowdown in enumerate(np.log1p(SLOWDOWNS)):
            slower = times.copy()
            slower[device, phases] += slowdown
            judgement = judge(slower)
            hit = bool(judgement.slow[device, phases].any())
            hits[place] += hit
            if place == TEN:
                promise = bool(healthy.detectable[phases].min() <= slowdown)
                report = bool(judgement.detectable[phases].min() <= slowdown)
                promised, kept = promised + promise, kept + (promise and hit)
                reported, true = reported + report, true + (report and hit)
    rates = [f"{count / fleets:.1%}" for count in (*hits, called, alarms)]
    smallest = f"{np.expm1(np.median(detectable)):.1%}"
    return [*rates, smallest, f"{kept} of {promised}", f"{true} of {reported}"]


def calibrate() -> None:
    """Print the tail of the distance from the others, by the number of others."""
    rng = np.random.default_rng(11)
    for others in (MIN_OTHERS, 4, 5, 6, 7, 9, 11, 15, 16, 31, 63):
        parts = []
        for _ in range(max(5, others)):
            values = rng.standard_t(3, (12_000_000 // (others + 1) // 5, others + 1))
            distance = values[:, 0] - np.median(values[:, 1:], axis=1)
            parts.append(distance / spread_of(values[:, 1:]))
        # The levels of one unit, and of sixteen units and phases twice.
        p = np.array([0.05 / (2 * (others + 1)), 0.05 / (32 * (others + 1))])
        near, far = np.quantile(np.concatenate(parts), 1 - p)

        def excess(df: float, p: Floats = p, ratio: float = far / near) -> float:
            quantiles = special.stdtrit(df, 1 - p)
            return float(quantiles[1] / quantiles[0] - ratio)

        df = optimize.brentq(excess, 1.2, 50)
        print(f"{others}: ({near / special.stdtrit(df, 1 - p[0]):.3g}, {df:.3g}),")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
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
    lines = [
        [devices, name, kind, *line(noise, spread, devices, asked.fleets, asked.rounds, rng)]
        for name, spread, kind, sizes in SPREADS
        for devices in sizes
    ]
    heading = ["devices", "good devices differ by", "used to"]
    heading += [f"{slowdown:.0%} slower" for slowdown in SLOWDOWNS]
    heading += ["called slow", "false alarms", "detectable"]
    heading += ["10% slower, where promised", "10% slower, where reported"]
    print(markdown(heading, lines))


if __name__ == "__main__":
    main()
