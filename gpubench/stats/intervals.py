"""Computes intervals of medians, and measures of scatter that a few outliers hardly change."""

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

NORMAL_95 = 1.959964

STUDENT_95 = {
    2: 4.3027,
    3: 3.1824,
    4: 2.7764,
    5: 2.5706,
    6: 2.4469,
    7: 2.3646,
    8: 2.3060,
    9: 2.2622,
}
"""97.5 % quantile of Student's t-distribution by its degrees of freedom. The quantiles are listed
here, because SciPy loads slowly."""

MIN_ROUNDS = 3
"""Minimum number of rounds for an interval. The half-width for two rounds would be 12.7 standard
errors."""

MAD_TO_SIGMA = 1.4826
"""Standard deviation of a normal distribution divided by its median absolute deviation (MAD)."""

SMALL_MAD = {2: 1.196, 3: 1.495, 4: 1.363, 5: 1.206, 6: 1.200, 7: 1.140, 8: 1.129, 9: 1.107}
"""Maps a number of values to the factor that makes the scaled MAD of normal values unbiased (Croux
and Rousseeuw, Computational Statistics 1, 1992, section 3)."""


def known_median(values: Iterable[float | None]) -> float | None:
    """Return the median of the values that are not None. Return None if there is no such value."""
    numbers = [value for value in values if value is not None]
    return float(statistics.median(numbers)) if numbers else None


def median_scale(values: NDArray[np.float64]) -> float:
    """Estimate the standard deviation of normal values by the MAD. Return 0 for a single value."""
    count = len(values)
    if count < 2:  # noqa: PLR2004 # one value has no scale
        return 0.0
    mad = float(np.median(np.abs(values - np.median(values))))
    return SMALL_MAD.get(count, count / (count - 0.8)) * MAD_TO_SIGMA * mad


WINSOR = 2.0
"""Maximum distance of a value from the median, divided by the standard deviation. Values that are
further away are moved to this distance. The MAD estimates the standard deviation."""

WINSOR_DF = 0.7
"""Degrees of freedom of a winsorized mean's standard error, divided by the number of values minus
one. The ratio is from a simulation of 400,000 pairs of samples with 3, 5 and 10 normal values."""


class RobustMean(NamedTuple):
    """A mean that a few outliers hardly change, with its standard error."""

    mean: float
    standard_error: float
    df: float
    """Degrees of freedom of the standard error."""


def robust_mean(values: NDArray[np.float64]) -> RobustMean:
    """Return the winsorized mean (Tukey and McLaughlin, Sankhya A 25, 1963).

    Almost half of the values may be outliers. The standard error and the degrees of freedom of a
    single value are 0.
    """
    count, middle, scale = len(values), float(np.median(values)), median_scale(values)
    clipped = np.clip(values, middle - WINSOR * scale, middle + WINSOR * scale)
    if count < 2:  # noqa: PLR2004 # one value has no scatter
        return RobustMean(middle, 0.0, 0.0)
    unclipped = max(2, int((clipped == values).sum()))
    error = float(clipped.std(ddof=1)) / math.sqrt(count) * (count - 1) / (unclipped - 1)
    return RobustMean(float(clipped.mean()), error, WINSOR_DF * (count - 1))


def median_interval(times: Sequence[float]) -> tuple[float, float, float]:
    """Return the lower end of the median's 95 % interval, the median, and the upper end.

    The ends are order statistics.

    The ranks come from the normal approximation of the binomial distribution, with continuity
    correction (David and Nagaraja, Order Statistics, 7.1). With fewer than six samples no pair of
    ranks covers 95 %, so the interval reaches from the smallest to the largest sample.
    """
    ordered = np.sort(np.asarray(times))
    count = len(ordered)
    low = max(0, math.floor((count - 1 - NORMAL_95 * math.sqrt(count)) / 2))
    return float(ordered[low]), float(np.median(ordered)), float(ordered[count - 1 - low])


def rounds_interval(
    medians: Sequence[float], between_sweeps: float = 0.0
) -> tuple[float, float] | None:
    """Return the 95 % interval of a point's time from the medians of its rounds.

    Return None for fewer than `MIN_ROUNDS` rounds. The t-interval of the logarithms contains the
    median of many rounds in 95 % of sweeps, whether a sweep has three rounds or ten.

    `between_sweeps` is the standard deviation between sweeps, in the unit of the medians. The
    rounds of one sweep do not show this deviation, because it shifts all rounds equally.
    """
    count = len(medians)
    if count < MIN_ROUNDS:
        return None
    logs = np.log(medians)
    centre = float(np.exp(logs.mean()))
    within = _student(count - 1) * float(logs.std(ddof=1)) / math.sqrt(count)
    half = math.hypot(within, NORMAL_95 * between_sweeps / centre)
    middle = float(np.median(medians))
    return min(middle, centre * math.exp(-half)), max(middle, centre * math.exp(half))


def _student(df: int) -> float:
    """Return the 97.5 % quantile of the t-distribution.

    From ten degrees of freedom on, a series gives the quantile (Abramowitz and Stegun, 26.7.5).
    """
    z = NORMAL_95
    first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
    return STUDENT_95.get(df) or z + first / df + second / df**2
