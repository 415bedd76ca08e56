"""Ratios of neighbouring measurements: what slows both of a pair does not change their ratio."""

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
    """Return `ratio_of_pairs` of the rounds that both have; None for fewer than `MIN_ROUNDS`."""
    count = min(len(numerators), len(denominators))
    if count < MIN_ROUNDS:
        return None
    return ratio_of_pairs(numerators[:count], denominators[:count], level)
