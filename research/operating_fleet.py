"""Simulated fleets with recorded noise, for `gpubench fleet` (`operating.py` runs it).

A fleet measures units (products, and parts of the device) on each device. The times of a simulated
unit scatter like a recorded point of one build on one H200 that takes at least `LEAST_US`. They are
random rounds from one sweep, so an effect on all rounds of a sweep stays with one device. Good
devices also differ by factors of their own.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gpubench.commands.fleet.judge import THRESHOLD, judge
from gpubench.commands.fleet.units import PHASES, PRODUCTS
from gpubench.results.row import read

SLOWDOWNS = 0.05, 0.10, 0.20
"""Simulated slow-downs of a single unit."""

IN_ALL = 0.05
"""Simulated slow-down of all units of a device."""

PARTS = 4
UNITS = len(PRODUCTS["cuda"].dtypes) + PARTS
ROUNDS = 3
LEAST_US = 100.0
PROCESSES = [*range(UNITS)] * len(PHASES)
"""Index of a unit in the first phase, for each unit in each phase. In the first phase (alone), each
round has its own process. In the second phase (together), all rounds share a process."""

Random = np.random.Generator
Floats = NDArray[np.float64]
Spread = Callable[[Random, tuple[int, int]], Floats]
"""A function that draws logarithms of the factors of good devices, of shape (devices, units)."""


SPREADS: dict[str, tuple[Spread, Sequence[int]]] = {
    "normal, 0.25 %": (lambda rng, shape: 0.0025 * rng.standard_normal(shape), (4, 8, 64)),
    "normal, 0.25 %; each process 0 or 4 % slower": (
        lambda rng, shape: 0.0025 * rng.standard_normal(shape), (8, 64)
    ),
    "t with 3 degrees of freedom, 0.25 %": (
        lambda rng, shape: 0.0025 * rng.standard_t(3, shape), (4, 8, 64)
    ),
    "t with 3 degrees of freedom, 0.5 %": (
        lambda rng, shape: 0.005 * rng.standard_t(3, shape), (4, 8, 64)
    ),
    "normal, 2 %": (lambda rng, shape: 0.02 * rng.standard_normal(shape), (4, 8, 64)),
    "Laplace, 0.5 %": (lambda rng, shape: rng.laplace(0, 0.005, shape), (4, 8, 64)),
    "one in twenty 10 times as wide as 0.25 %": (
        lambda rng, shape: np.where(rng.random(shape) < 0.05, 10, 1)  # noqa: PLR2004 # one in twenty
        * (0.0025 * rng.standard_normal(shape)), (4, 8, 64)
    ),
    "normal, 0.2 %, on two boards 1 % apart": (
        lambda rng, shape: 0.01 * rng.integers(2, size=(shape[0], 1))
        + 0.002 * rng.standard_normal(shape), (5, 12, 40)
    ),
    "exponential, 0.5 %": (lambda rng, shape: rng.exponential(0.005, shape), (5, 12, 40)),
    "t with 5 degrees of freedom, 0.1 to 2 % by unit": (
        lambda rng, shape: 0.001 * 20 ** rng.random((1, UNITS))
        * (0.5 * rng.standard_normal((shape[0], 1)) + rng.standard_t(5, shape)), (5, 12, 40)
    ),
    "normal, 0.3 %, and up to 1.5 % by the place in a rack": (
        lambda rng, shape: 0.015 * rng.random((shape[0], 1))
        + 0.003 * rng.standard_normal(shape), (6, 20, 70)
    ),
    "log-normal, median 0.3 %": (
        lambda rng, shape: 0.003 * rng.lognormal(0, 0.8, shape), (6, 20, 70)
    ),
}  # fmt: skip
"""Maps the name of a spread to a function that draws how much good devices differ, and to the
numbers of devices in the simulated fleets."""

LINES = [(name, devices) for name, (_, sizes) in SPREADS.items() for devices in sizes]

HEADING = ["good devices differ by", "devices", *(f"{size:.0%} in one unit" for size in SLOWDOWNS),
           f"{IN_ALL:.0%} in all units", "a device called slow", "false alarms", "detectable",
           "10% where promised"]  # fmt: skip


def recorded(files: Sequence[Path]) -> Floats:
    """Return the logarithms of round medians, each divided by the median of its point.

    The shape is (points, sweeps, rounds).
    """
    sweeps = [
        {row.key: row for row in read(path) if row.median_us and row.median_us >= LEAST_US}
        for path in files
    ]
    common = sorted(set.intersection(*map(set, sweeps)))
    times = [[sweep[key].round_medians_us for sweep in sweeps] for key in common]
    max_sweeps = max(len(of_sweep) for point in times for of_sweep in point)
    logs = np.log(
        [point for point in times if all(len(of_sweep) == max_sweeps for of_sweep in point)]
    )
    return np.asarray(logs - np.median(logs, axis=(1, 2), keepdims=True))


def fleet(noise: Floats, own: Floats, rng: Random) -> Floats:
    """Simulate a fleet without a slow device, and return logarithms of times.

    The shape is (devices, units and phases, rounds). `own` has the logarithms of the devices'
    factors, which are equal in both phases.
    """
    points, sweeps, recorded_rounds = noise.shape
    shape = len(own), UNITS * len(PHASES)
    point = np.tile(rng.choice(points, UNITS), len(PHASES))[None, :, None]
    sweep = rng.integers(sweeps, size=(*shape, 1))
    chosen = rng.random((*shape, recorded_rounds)).argsort(axis=2)[:, :, :ROUNDS]
    return np.asarray(noise[point, sweep, chosen] + np.tile(own, len(PHASES))[:, :, None])


def truly_slow(own: Floats) -> NDArray[np.bool_]:
    """Return at which units a device is slower than the other devices' median by the threshold."""
    others = [np.median(np.delete(own, device, axis=0), axis=0) for device in range(len(own))]
    return np.asarray(own - np.array(others) > np.log1p(THRESHOLD))


def line(noise: Floats, name: str, devices: int, fleets: int, rng: Random) -> list[object]:
    """Simulate fleets, and return the line of the table. Each figure is a number of fleets."""
    spread, (_, _, two_speeds) = SPREADS[name][0], name.partition("each process")
    hits = np.zeros(len(SLOWDOWNS), int)
    in_all = called = alarms = promised = kept = 0
    detectable = []
    for _ in range(fleets):
        own = spread(rng, (devices, UNITS))
        times = fleet(noise, own, rng)
        if two_speeds:  # alone, each round is a process; together, all rounds are one
            times[:, :UNITS] += np.log1p(0.04) * rng.integers(2, size=(devices, 1, ROUNDS))
            times[:, UNITS:] += np.log1p(0.04) * rng.integers(2, size=(devices, 1, 1))
        healthy = judge(times, processes=PROCESSES)
        called += bool(healthy.slow.any())
        alarms += bool((healthy.slow & ~np.tile(truly_slow(own), len(PHASES))).any())
        detectable.append(np.median(healthy.detectable))
        device, unit = rng.integers(devices), rng.integers(UNITS)
        phases = slice(unit, None, UNITS)
        for place, slowdown in enumerate(SLOWDOWNS):
            slower = times.copy()
            slower[device, phases] += np.log1p(slowdown)
            hit = bool(judge(slower, processes=PROCESSES).slow[device, phases].any())
            hits[place] += hit
            if slowdown == 0.10:  # noqa: PLR2004 # the slowdown of the last column
                promise = bool(healthy.detectable[phases].min() <= np.log1p(slowdown))
                promised, kept = promised + promise, kept + (promise and hit)
        slower = times.copy()
        slower[device] += np.log1p(IN_ALL)
        in_all += bool(judge(slower, processes=PROCESSES).slow[device].any())
    counts = [f"{count} of {fleets}" for count in (*hits, in_all, called, alarms)]
    smallest = f"{np.expm1(np.median(detectable)):.1%}"
    return [name, devices, *counts, smallest, f"{kept} of {promised}"]


# ---- disturbed rounds, and several slow devices

Case = tuple[str, int, int, str]
"""A line of the table: name of the spread, number of devices, number of slow devices,
disturbance."""

ROUND, BY_UNIT, EACH = "in one round", "in one round, by unit", "each in a round of its own"
DISTURBED: Sequence[Case] = [
    *(("normal, 0.25 %", devices, 0, ROUND) for devices in (4, 8, 16, 64)),
    *(("log-normal, median 0.3 %", devices, 0, BY_UNIT) for devices in (5, 14, 40)),
    ("t with 3 degrees of freedom, 0.25 %", 11, 0, EACH),
    ("normal, 0.25 %", 11, 1, ROUND),
    *(("normal, 0.25 %", count, slow, "") for count, slow in ((8, 2), (8, 3), (12, 4), (16, 5))),
    *(("log-normal, median 0.3 %", devices, slow, "") for devices, slow in ((9, 3), (14, 4))),
    ("Laplace, 0.5 %", 15, 5, ""),
    ("normal, 0.3 %, and up to 1.5 % by the place in a rack", 13, 4, ""),
    *(("t with 3 degrees of freedom, 0.5 %", devices, 0, "") for devices in (9, 12, 16)),
]  # fmt: skip

DISTURBED_HEADING = ["good devices differ by", "devices", "slow by 6 to 15 %", "disturbed",
                     "a slow device found", "all slow devices found", "false alarms"]  # fmt: skip


def disturbed_line(noise: Floats, case: Case, fleets: int, rng: Random) -> list[object]:
    """Simulate disturbed fleets, and return the line of the table.

    Slow devices are slow in all units.
    """
    spread, devices, slow, where = case
    any_found = all_found = alarms = 0
    for _ in range(fleets):
        own = SPREADS[spread][0](rng, (devices, UNITS))
        chosen = rng.choice(devices, slow, replace=False)
        own[chosen] += np.log1p(rng.uniform(0.06, 0.15, (slow, 1)))
        times = fleet(noise, own, rng)
        victims = range(devices) if where == EACH else rng.choice(devices, 1)
        for victim in victims if where else ():
            by = rng.uniform(0.1, 1.0, times.shape[1]) if where == BY_UNIT else 0.3
            times[victim, :, rng.integers(ROUNDS)] += np.log1p(by)
        slow_devices = judge(times, processes=PROCESSES).slow
        any_found += bool(slow_devices[chosen].any())
        all_found += bool(slow and slow_devices[chosen].any(axis=1).all())
        alarms += bool((slow_devices & ~np.tile(truly_slow(own), len(PHASES))).any())
    found_of = [f"{count} of {fleets}" if slow else "" for count in (any_found, all_found)]
    return [spread, devices, slow or "", where, *found_of, f"{alarms} of {fleets}"]
