"""Tests whether the shortest times of two sides differ. No disturbance lengthened these times.

While other programs run, times fall into two groups, and a mean shows little. The shortest times of
both sides are times that no disturbance lengthened. So the shortest times are compared by their
ranks, and all longer times count as equal. The clock of a machine drifts by a tenth within minutes,
so each time is first divided by the shortest time of both sides at about that moment. The test is
exact for any distribution of times, if all orders of the times are equally likely.

J. L. Gastwirth, Percentile modifications of two sample rank tests, Journal of the American
Statistical Association 60 (1965).
"""

from collections.abc import Sequence
from functools import cache
from math import comb, sqrt

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from gpubench.stats.reference import shared_median

NEAR = 6
"""Two sweeps count as measured at the same time if their positions within their sides differ by at
most this value. The value was chosen with recorded sweeps: results/decisions/ab_shortest.md."""


def compare_shortest(base: NDArray[np.float64], new: NDArray[np.float64], margin: float) -> float:
    """Return the two-sided p-value of the hypothesis that the true effect is at most the margin.

    The times are logarithms, in the order in which each side was measured.
    """
    return min(1.0, 2 * min(_chance(base + margin, new), _chance(new + margin, base)))


def decide_by_shortest(
    sides: Sequence[tuple[Sequence[float], Sequence[float]] | None],
    blas: NDArray[np.bool_],
    margin: NDArray[np.float64],
    p: NDArray[np.float64],
    effect: NDArray[np.float64],
) -> NDArray[np.bool_]:
    """Update `p` and `effect` by the shortest times. Return whether these times decided each point.

    `sides` has both sides' times of each point, or None for a point without a test. `p` and
    `effect` come from another test. A point with both tests gets twice the smaller p-value. A shift
    that the points share with the vendor's BLAS is attributed to the machine and subtracted.
    """
    logs = {i: (np.log(side[0]), np.log(side[1])) for i, side in enumerate(sides) if side}
    shifts = np.array([_shift(*pair) for pair in logs.values()])
    drift = shared_median(shifts, blas[list(logs)]) if logs else 0.0
    decided = np.zeros(len(p), bool)
    for (i, (base, new)), shift in zip(logs.items(), shifts, strict=True):
        p_shortest = compare_shortest(base, new - drift, margin[i])
        decided[i] = p_shortest < p[i]
        effect[i] = shift - drift if decided[i] else effect[i]
        p[i] = min(1.0, 2 * min(p[i], p_shortest))
    return decided


def _shift(base: NDArray[np.float64], new: NDArray[np.float64]) -> float:
    """Return the low quantile of the new side's times minus the low quantile of the base's times.

    If both sides have the same number of times with a rank (`_ranked`), the quantile is the median
    of these times.
    """
    low = 1 / sqrt(len(base) + len(new))
    return float(np.quantile(new, low) - np.quantile(base, low))


def _levels(
    first: NDArray[np.float64], second: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the shortest time of both sides near the moment at which each time was measured."""
    length = max(len(first), len(second))
    of_both = np.full((2, length + 2 * NEAR), np.inf)
    of_both[0, NEAR : NEAR + len(first)] = first
    of_both[1, NEAR : NEAR + len(second)] = second
    shortest = sliding_window_view(of_both.min(axis=0), 2 * NEAR + 1).min(axis=1)
    return shortest[: len(first)], shortest[: len(second)]


def _chance(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """Return the one-sided p-value of the hypothesis that `first` is not faster than `second`.

    The shortest of all times has the score r (`_ranked`), the second shortest time has r - 1, and
    the r-th time has 1. The sum over `first` is compared with the sums of all possible orders.
    """
    levels = _levels(first, second)
    first, second = first - levels[0], second - levels[1]
    number = len(first) + len(second)
    ranked = _ranked(number)
    order = np.argsort(np.concatenate([second, first]), kind="stable")[:ranked]
    scores = np.arange(ranked, 0, -1)
    return float(_tail(len(first), number)[scores[order >= len(second)].sum()])


def _ranked(number: int) -> int:
    """Return how many of the shortest times get a rank, if there are `number` times.

    The square root and the factor were chosen with recorded sweeps:
    results/decisions/ab_shortest.md.
    """
    return round(2 * sqrt(number))


@cache
def _tail(first: int, number: int) -> NDArray[np.float64]:
    """Return the probabilities of sums of scores (`_chance`) if all orders are equally likely.

    Element i is the probability that the sum is i or more.
    """
    ranked = _ranked(number)
    ways = np.zeros((ranked + 1, ranked * (ranked + 1) // 2 + 1))  # by number of times, and sum
    ways[0, 0] = 1
    for score in range(1, ranked + 1):
        ways[1:, score:] += ways[:-1, :-score].copy()
    others = [comb(number - ranked, first - k) if k <= first else 0 for k in range(ranked + 1)]
    chances = np.array([count / comb(number, first) for count in others]) @ ways
    tail: NDArray[np.float64] = chances[::-1].cumsum()[::-1]
    return tail
