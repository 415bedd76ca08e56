"""Intervals of medians, and robust scales."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

NORMAL_95 = 1.959964


MAD_TO_SIGMA = 1.4826
"""Standard deviation of a normal distribution over its median absolute deviation (MAD)."""


def median_interval(times: Sequence[float]) -> tuple[float, float, float]:
    """Median and its 95 % interval from order statistics: (low, median, high).

    The ranks are those of the binomial distribution, by its normal approximation with continuity
    correction (David and Nagaraja, Order Statistics, 7.1). Under six samples no pair of ranks
    covers 95 %: the interval is the whole range.
    """
    ordered = np.sort(np.asarray(times))
    count = len(ordered)
    low = max(0, math.floor((count - 1 - NORMAL_95 * math.sqrt(count)) / 2))
    return float(ordered[low]), float(np.median(ordered)), float(ordered[count - 1 - low])
