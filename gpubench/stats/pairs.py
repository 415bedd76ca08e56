"""Computes ratios of measurements that were made one after the other.

If a disturbance slows both measurements of a pair, the ratio of their times does not change.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import special

from gpubench.stats.intervals import MIN_ROUNDS


class Ratio(NamedTuple):
    """A ratio with its interval."""

    ratio: float
    low: float
    high: float


def ratio_of_pairs(
    numerators: Sequence[float], denominators: Sequence[float], level: float = 0.95
) -> Ratio:
    """Return the geometric mean of the pairs' ratios, and its t interval.

    Elements with the same index are neighbours in time. Raises ValueError for fewer than two pairs.
    """
    logs = np.log(np.asarray(numerators, float) / np.asarray(denominators, float))
    if len(logs) < 2:  # noqa: PLR2004 # one pair has no variance
        raise ValueError("an interval needs two pairs or more")
    error = float(logs.std(ddof=1)) / math.sqrt(len(logs))
    half = float(special.stdtrit(len(logs) - 1, (1 + level) / 2)) * error
    mean = float(logs.mean())
    return Ratio(math.exp(mean), math.exp(mean - half), math.exp(mean + half))


def ratio_of_rounds(
    numerators: Sequence[float], denominators: Sequence[float], level: float = 0.95
) -> Ratio | None:
    """Return the ratio of two series over the rounds that both series have.

    Return None for fewer than `MIN_ROUNDS` common rounds.
    """
    count = min(len(numerators), len(denominators))
    if count < MIN_ROUNDS:
        return None
    return ratio_of_pairs(numerators[:count], denominators[:count], level)


DRIFT_MARGIN = 0.4
"""Amount that is added to the estimated correlation of neighbouring rounds. With few rounds, the
standard deviation of the estimate is about 0.3. In simulations of 15 rounds with a correlation of
0.8, at most 5 % of equally fast functions were judged faster."""

MAX_DRIFT = 0.95  # maximum of the correlation after the margin is added


def drifting_low(
    numerators: Sequence[float], denominators: Sequence[float], level: float
) -> float | None:
    """Return the lower end of the interval of `ratio_of_rounds`, for rounds that may drift.

    Neighbouring rounds may resemble each other. The mean of such rounds scatters more than the mean
    of independent rounds. So the interval is widened, by the factor of an autoregressive process of
    first order. The correlation of the process is estimated, corrected for the number of rounds
    (Marriott and Pope, 1954), and increased by `DRIFT_MARGIN`. Return None for fewer than
    `MIN_ROUNDS` rounds.
    """
    ratio = ratio_of_rounds(numerators, denominators, level)
    if ratio is None:
        return None
    count = min(len(numerators), len(denominators))
    logs = np.log(np.asarray(numerators[:count], float) / np.asarray(denominators[:count], float))
    deviations = logs - logs.mean()
    squares = float(deviations @ deviations)
    correlation = float(deviations[1:] @ deviations[:-1]) / squares if squares else 0.0
    correlation += (1 + 3 * correlation) / count + DRIFT_MARGIN
    correlation = min(max(correlation, 0.0), MAX_DRIFT)
    lags = np.arange(1, count)
    variance = 1 + 2 * float(((1 - lags / count) * correlation**lags).sum())
    spread = max(1 - (variance - 1) / (count - 1), 1 / count)
    half = math.log(ratio.ratio / ratio.low) * math.sqrt(variance / spread)
    return ratio.ratio * math.exp(-half)
