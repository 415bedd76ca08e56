"""Computes which slow-downs can be found, and how many rounds are needed to find a slow-down."""

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from gpubench.stats.moderated import LEAST_SD, Floats, Variance, shrunk, summarize
from gpubench.stats.modes import DECIDING_ROUNDS, MODE_GAP, NEAR, Flags, Modes
from gpubench.stats.polish import polish
from gpubench.stats.shortest import compare_shortest

COVERED = 0.95
"""Fraction of the points, or of the kernels, whose slow-down must be found. `diff` promises only a
fraction of 0.9."""


POWER = 0.9  # fraction of the cases in which a slow-down must be found

SIDES = (*range(3, 20), *range(20, 50, 2), *range(50, 201, 10))
SWEEPS = (7, 10, 14, 20, 28, 40, 56, 72, 100, 140, 200)
"""Numbers of sweeps per side that are tried on a CPU. `SIDES` has the numbers of rounds per side
that are tried on a GPU. Two rounds are not tried, because they show a variance only roughly."""

DRAWS = 40  # number of simulated comparisons for each point and each number of sweeps
DRAW_SEED = 83


@dataclass(frozen=True, kw_only=True)
class Detectable:
    """The smallest slow-downs that are found in nine of ten cases. 0.05 stands for 5 %.

    A field is None if even large slow-downs are not found in nine of ten cases.
    """

    everything: float | None = None
    """The smallest slow-down that is found if all points slow down, except the points of the
    BLAS."""

    kernel: float | None = None
    """The smallest slow-down of a whole kernel that is found for nine of ten kernels."""

    point: float | None = None
    """The smallest slow-down of a single point that is found for nine of ten points."""


def smallest(
    kernels: Sequence[str | None],
    error: Floats,
    variance: Variance,
    margin: Floats,
    q: float,
    modes: Modes,
    others: Floats,
    machine: float,
) -> Detectable:
    """Return the smallest slow-downs that a comparison would have found.

    `kernels` has the kernel of each point, or None for a point of the BLAS. A point's slow-down is
    found if it exceeds the limit of the test plus the point's `error`. A kernel's slow-down is
    found if the slow-downs of half of its points are found. If only a single point slowed, a
    slow-down up to the point's element of `others` is not found, because the two speeds of other
    points explain it. If at least half of the points slowed, the amount `machine` of the slow-down
    is attributed to the machine.
    """
    names = np.array([name or "" for name in kernels])
    own = names != ""
    if not own.any():
        return Detectable()

    def sizes(points: Flags, number: float, hides: Floats) -> Floats:
        level = q * max(1.0, number) / len(names)
        deviation = special.stdtrit(variance.df[points], 1 - level)
        limit = margin[points] + variance.standard_error[points] * deviation
        size = np.maximum(limit, hides[points]) + np.abs(error[points])
        return np.asarray(np.nan_to_num(size, nan=np.inf))

    def of_set(points: Flags) -> tuple[float, float]:
        size = np.median(sizes(points, points.sum() / 2, modes.hides))
        by_machine = machine * (2 * points.sum() >= own.sum())
        return float(size + by_machine), float(np.median(modes.aside[points]))

    alone = sizes(own, 1, np.maximum(modes.hides, others))
    by_kernel = [of_set(names == name) for name in np.unique(names[own])]
    logs = {
        "everything": _covering(np.array([of_set(own)])),
        "kernel": _covering(np.array(by_kernel)),
        "point": _covering(np.stack([alone, modes.aside[own]], axis=1)),
    }
    return Detectable(**{name: float(np.expm1(log)) for name, log in logs.items() if log < np.inf})


def _covering(lines: Floats) -> float:
    """Return the smallest slow-down that is found for the fraction `COVERED` of the lines.

    Each line describes a point or a set of points by two numbers. The first number is the smallest
    slow-down that is found. The second number is a slow-down that was measured in a round that was
    left out. A slow-down near the second number is not found.
    """
    sizes, aside = lines.T
    tries = np.sort(np.append(sizes, (1 + NEAR) * aside))
    for size in tries[tries >= np.quantile(sizes, COVERED, method="higher")]:
        near = np.abs(size - aside) < NEAR * aside
        if np.mean((size >= sizes) & ~near) >= COVERED:
            return float(size)
    return np.inf


@dataclass(frozen=True, kw_only=True)
class Needed:
    """Numbers of repeats per side that are needed to find a slow-down in nine of ten cases.

    A repeat is a round or a sweep. A field is None if the number is too large.
    """

    kernel: int | None
    """Number of repeats that are needed to find a slow-down of a whole kernel, for nine of ten
    kernels."""

    point: int | None
    """Number of repeats that are needed to find a slow-down of a single point, for nine of ten
    points."""


def rounds_to_find(
    size: float, kernels: Sequence[str | None], logs: Floats, threshold: float, q: float
) -> Needed:
    """Return the number of rounds that each side needs to show a slow-down of at least `size`.

    Rounds are assumed to scatter like the recorded rounds.

    `logs` has the logarithms of the times, of shape (points, rounds), and `kernels` the kernel of
    each point, or None for a point of the BLAS. `size` and `threshold` are relative differences. A
    kernel's slow-down is found if the slow-downs of half of its points are found.
    """
    rounds = summarize(polish(logs).logs)
    df = np.maximum(rounds.number - 1, 1)
    variance, total_df = shrunk(np.maximum(rounds.squares / df, LEAST_SD**2), df)
    counts = np.array(SIDES)
    prior, place = np.unique(total_df - df, return_inverse=True)
    freedom = prior + 2 * (counts[:, None] - 1)
    errors = np.sqrt(2 * variance / counts[:, None])
    margin = np.log1p(threshold)
    two_speeds = (rounds.gap > margin) & (rounds.gap > MODE_GAP * rounds.group)

    def by_points(level: float, part: float) -> Floats:
        width = special.stdtrit(freedom, 1 - level) + special.stdtrit(freedom, part)
        shows = margin + width[:, place] * errors <= np.log1p(size)
        needed = np.where(shows.any(axis=0), counts[shows.argmax(axis=0)], np.inf)
        return np.where(two_speeds, np.maximum(needed, DECIDING_ROUNDS / 2), needed)

    return _needed(kernels, by_points, q)


def sweeps_to_find(
    size: float, kernels: Sequence[str | None], logs: Floats, threshold: float, q: float
) -> Needed:
    """Return the number of sweeps that each side needs to show a slow-down on a CPU.

    The slow-down is tested with the shortest times of the sweeps.

    The arguments are the same as for `rounds_to_find`, but `logs` has the shortest time of each
    sweep instead of the times of rounds. Comparisons are simulated with sweeps that are drawn from
    the recorded sweeps. The drawn sweeps keep their order, because the clock drifts from sweep to
    sweep.
    """
    rng = np.random.default_rng(DRAW_SEED)
    step, margin = np.log1p(size), np.log1p(threshold)

    def found(times: Floats, count: int, level: float, part: float) -> bool:
        drawn = np.sort(rng.integers(len(times), size=(DRAWS, 2, count)))
        p = [compare_shortest(times[base], times[new] + step, margin) for base, new in drawn]
        return bool(np.mean(np.array(p) <= level) >= part)

    def by_points(level: float, part: float) -> Floats:
        def places(times: Floats) -> int:
            return bisect_left(SWEEPS, True, key=lambda n: found(times, n, level / 2, part))

        return np.array([(*SWEEPS, np.inf)[places(row[np.isfinite(row)])] for row in logs])

    return _needed(kernels, by_points, q)


def _needed(
    kernels: Sequence[str | None], by_points: Callable[[float, float], Floats], q: float
) -> Needed:
    """Return the numbers of repeats that are needed to find a slow-down of a kernel and of a point.

    `by_points` returns the number of repeats for each point. The arguments of `by_points` are
    the level of the test, and the fraction of the cases in which a slow-down must be found.
    """
    names = np.array([name or "" for name in kernels])
    own = names != ""
    of_kernels = [
        np.median(by_points(q * max(1.0, part / 2) / len(names), POWER)[names == name])
        for name, part in zip(*np.unique(names[own], return_counts=True), strict=True)
    ]
    of_points = by_points(q / len(names), COVERED)[own]
    return Needed(kernel=_in_most(of_kernels, POWER), point=_in_most(of_points, COVERED))


def _in_most(numbers: Sequence[float] | Floats, part: float) -> int | None:
    """Return the number of repeats that suffices in the fraction `part` of the cases.

    Return None if the number is infinite.
    """
    enough = np.quantile(numbers, part, method="higher") if len(numbers) else np.inf
    return math.ceil(enough) if np.isfinite(enough) else None
