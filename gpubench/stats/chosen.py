"""Widens the intervals of times so that the interval of the shortest time is valid, too.

The shortest of many times is short partly by chance. Intervals that hold for all times together
(Bonferroni) also hold for the shortest time. A few rounds show the scatter of a time only roughly,
so the scatter of each time is shrunk towards the common scatter of all times (`moderated.shrunk`).
"""

from collections.abc import Sequence

import numpy as np
from scipy import special

from gpubench.stats.intervals import NORMAL_95
from gpubench.stats.moderated import LEAST_SD, Floats, shrunk


def together(halves: Sequence[float], rounds_us: Sequence[Sequence[float]]) -> Floats:
    """Return half-widths of intervals that all hold at once with a probability of 95 %.

    `halves` has half of each time's own 95 % interval, as a fraction of the time. This interval may
    cover more than the scatter of the time's rounds, such as the scatter between sweeps.
    """
    own = np.array(halves)
    tail = 0.025 / max(1, len(own))
    wider = float(special.ndtri(1 - tail)) / NORMAL_95
    repeated = np.array([len(times) > 1 for times in rounds_us], bool)
    if not repeated.any():
        return wider * own
    logs = [
        np.log(times) for times, is_repeated in zip(rounds_us, repeated, strict=True) if is_repeated
    ]
    number = np.array([len(each) for each in logs], float)
    variance = np.array([max(each.var(ddof=1), LEAST_SD**2) for each in logs])
    posterior, df = shrunk(variance, number - 1)
    usual = special.stdtrit(number - 1, 0.975) * np.sqrt(variance / number)
    beside = np.sqrt(np.maximum(own[repeated] ** 2 - usual**2, 0.0))
    half = wider * own
    half[repeated] = np.hypot(
        special.stdtrit(df, 1 - tail) * np.sqrt(posterior / number), wider * beside
    )
    return half
