"""Whether the shortest times of two sides differ, where disturbances lengthen many of the others.

Beside other work a time has two modes, and a mean shows little. Nothing lengthened the shortest
times of both sides. The test counts how many of them come from one side alone. It is exact for any
distribution of times, as long as they could have been measured in any order.
"""

from collections.abc import Sequence
from math import comb
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpubench.stats.reference import shared_median

SHOWN = 0.2
"""Largest p-value at which a shift of the BLAS is attributed to the machine. In a simulation of 14
sweeps a side, other work slows 60 % of the BLAS's sweeps and a third of the kernel's. A 5 % shift
of the machine is attributed to the kernel in 5 % of comparisons (7 % with 0.05, 18 % if every
shift counts). A kernel that is 10 % slower is found in 96 % (97 % and 86 %)."""


class Shortest(NamedTuple):
    """Result of comparing the shortest times."""

    p: float
    """Two-sided p-value of the hypothesis that the true effect is at most the margin."""

    effect: float
    """Difference of the lower quartiles, new less base."""


def compare_shortest(
    base: NDArray[np.float64], new: NDArray[np.float64], margin: float
) -> Shortest:
    """Compare logarithms of times. A side must exceed the other by more than `margin`.

    Of b and n times that could have any order, the r shortest are all of the base with the
    probability C(b, r) / C(b + n, r).
    """
    slower = _chance(_leading(base + margin, new), len(base), len(new))
    faster = _chance(_leading(new + margin, base), len(new), len(base))
    effect = float(np.quantile(new, 0.25) - np.quantile(base, 0.25))
    return Shortest(min(1.0, 2 * min(slower, faster)), effect)


def decide_by_shortest(
    sides: Sequence[tuple[Sequence[float], Sequence[float]] | None],
    blas: NDArray[np.bool_],
    margin: NDArray[np.float64],
    p: NDArray[np.float64],
    effect: NDArray[np.float64],
) -> NDArray[np.bool_]:
    """Update `p` and `effect`; return the points whose shortest times have the smaller p-value.

    `sides` has both sides' times of each point, or None. `p` and `effect` come from another test. A
    point with both tests gets twice the smaller p-value. A shift that the points share with the
    vendor's BLAS is attributed to the machine and subtracted, as far as the shortest times show it:
    a BLAS on all cores is disturbed more often than a kernel on one core.
    """
    logs = {i: (np.log(side[0]), np.log(side[1])) for i, side in enumerate(sides) if side}
    there = np.array(list(logs), dtype=int)
    shifts = [compare_shortest(*pair, 0.0) for pair in logs.values()]
    shown = np.array([shift.effect if shift.p <= SHOWN else 0.0 for shift in shifts])
    drift = shared_median(shown, blas[there]) if logs else 0.0
    decided = np.zeros(len(p), bool)
    for i, (base, new) in logs.items():
        found = compare_shortest(base, new - drift, margin[i])
        decided[i] = found.p < p[i]
        effect[i] = found.effect if decided[i] else effect[i]
        p[i] = min(1.0, 2 * min(p[i], found.p))
    return decided


def _leading(first: NDArray[np.float64], second: NDArray[np.float64]) -> int:
    """Return the number of times in `first` that are shorter than all times in `second`."""
    return int((first < second.min()).sum())


def _chance(run: int, of: int, others: int) -> float:
    return comb(of, run) / comb(of + others, run)
