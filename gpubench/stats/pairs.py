"""Ratios of neighbouring measurements: what slows both of a pair leaves their ratio as it is.

Pure, on arrays. The trimmed mean and its variance are those of Yuen, Biometrika 61 (1974).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import special

from gpubench.stats.moderated import MIN_SD, Floats, Variance, shrunk

TRIM = 0.2
"""Fraction of the pairs that is left out at each end, so that pairs of which a disturbance hit only
one measurement do not decide."""


class Differences(NamedTuple):
    """Statistics of the differences of each point's pairs: arrays with an element a point."""

    number: Floats
    """Number of pairs that remain after trimming."""

    mean: Floats
    """Trimmed mean."""

    squares: Floats
    """Sum of the squared deviations after each trimmed pair took the value of the nearest pair that
    remains (winsorized)."""


def summarize_pairs(logs: Sequence[Floats], trim: float = TRIM) -> Differences:
    """Return the trimmed statistics of each point. `logs` has the logarithms of its ratios."""
    columns = [_trimmed(np.sort(of_point), trim) for of_point in logs]
    return Differences(*(np.array(column, float) for column in zip(*columns, strict=True)))


def _trimmed(ordered: Floats, trim: float) -> tuple[float, float, float]:
    cut = int(trim * len(ordered))
    kept = ordered[cut : len(ordered) - cut]
    winsorized = np.clip(ordered, kept[0], kept[-1])
    return len(kept), kept.mean(), float(((winsorized - winsorized.mean()) ** 2).sum())


def moderate_pairs(differences: Differences) -> Variance:
    """Return the standard error of each trimmed mean, shrunk towards what the points share.

    A point with one pair has no variance of its own, and is not given one.
    """
    number, _, squares = differences
    df = number - 1
    judged = df > 0
    variance = np.maximum(squares / np.maximum(df, 1), MIN_SD**2)
    posterior, total_df = np.full_like(variance, np.nan), np.full_like(variance, np.nan)
    posterior[judged], total_df[judged] = shrunk(variance[judged], df[judged])
    return Variance(np.sqrt(posterior / number), total_df)


class Ratio(NamedTuple):
    """A ratio of two times with its interval."""

    ratio: float
    low: float
    high: float
    pairs: int


def ratio_of_pairs(
    first_us: Sequence[float], second_us: Sequence[float], level: float = 0.95
) -> Ratio:
    """Return the geometric mean of `first_us[i] / second_us[i]` and its t interval.

    The elements with one index are neighbours in time. Raises ValueError for fewer than two pairs.
    """
    logs = np.log(np.asarray(first_us, float) / np.asarray(second_us, float))
    if len(logs) < 2:  # noqa: PLR2004 # one pair has no variance
        raise ValueError("an interval takes two pairs or more")
    error = logs.std(ddof=1) / math.sqrt(len(logs))
    half = float(special.stdtrit(len(logs) - 1, (1 + level) / 2)) * error
    mean = float(logs.mean())
    return Ratio(math.exp(mean), math.exp(mean - half), math.exp(mean + half), len(logs))
