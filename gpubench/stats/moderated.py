"""The moderated t-test, which shrinks the variance of each point towards a common value.

The method is limma's: Smyth, Statistical Applications in Genetics and Molecular Biology 3 (2004),
article 3. The test against a threshold is `treat`, McCarthy and Smyth, Bioinformatics 25 (2009). As
in the robust fit of Phipson and others, Annals of Applied Statistics 10 (2016), the points with the
largest variances do not influence the prior, and a point whose variance is improbable by the prior
keeps its own variance.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

Floats = NDArray[np.float64]

TOP = 0.1
"""When the prior is estimated, this fraction of the points is left out. These points have the
largest variances."""

REJECTED = 0.01
"""A point keeps its own variance if the prior gives a larger variance a probability below this
value."""

LEAST_SD = 1e-5
"""Minimum standard deviation of the logarithms of times. If rounds scatter less, they agree only
because times are rounded."""


class RoundStatistics(NamedTuple):
    """Statistics of the rounds of one side.

    Each field is an array with an element for each point.
    """

    number: Floats
    """Number of rounds."""

    mean: Floats
    """Mean of the logarithms of the times."""

    squares: Floats
    """Sum of the squared deviations of the logarithms from the mean."""

    low: Floats
    high: Floats
    gap: Floats
    """Largest difference between two neighbouring logarithms after sorting."""

    group: Floats
    """Width of the wider of two groups of rounds. The rounds are sorted, and divided at the largest
    step."""


def summarize(logs: Floats) -> RoundStatistics:
    """Return statistics of the rounds of each point.

    `logs` has the logarithms of the times, of shape (points, rounds). NaN stands for a missing
    time.
    """
    ordered, point = np.sort(logs, axis=1), np.arange(len(logs))  # NaNs last
    number = np.isfinite(logs).sum(axis=1)
    with np.errstate(invalid="ignore"):
        mean = np.nansum(ordered, axis=1) / number
    squares = np.nansum((ordered - mean[:, None]) ** 2, axis=1)
    low, high = ordered[:, 0], ordered[point, number - 1]
    steps = np.nan_to_num(np.diff(ordered, append=np.nan))
    gap, edge = steps.max(axis=1), ordered[point, steps.argmax(axis=1)]
    group = np.maximum(edge - low, high - edge - gap)
    return RoundStatistics(number.astype(float), mean, squares, low, high, gap, group)


class Variance(NamedTuple):
    """Standard error of the difference between two means. Each field has an element for each point.

    Both fields are NaN for a point that has no variance.
    """

    standard_error: Floats
    df: Floats
    """Degrees of freedom of the standard error."""


def moderate(
    base: RoundStatistics,
    new: RoundStatistics,
    level_variance: Floats | float = 0.0,
    level_df: Floats | float = np.inf,
) -> Variance:
    """Return the standard error of `new.mean - base.mean` for each point, with degrees of freedom.

    The variance of each point's rounds is shrunk towards the prior.

    `level_variance` is the variance of the shift that all points share. It has `level_df` degrees
    of freedom, and is added to each point's variance. The degrees of freedom of the sum follow
    Satterthwaite's formula. A point with one round per side has no variance, so its elements are
    NaN.
    """
    df = base.number + new.number - 2
    judged = df > 0
    variance = np.maximum((base.squares + new.squares) / np.maximum(df, 1), LEAST_SD**2)
    posterior, total_df = np.full_like(variance, np.nan), np.full_like(variance, np.nan)
    posterior[judged], total_df[judged] = shrunk(variance[judged], df[judged])
    own = posterior * (1 / base.number + 1 / new.number)
    total = own + level_variance
    df = total**2 / (own**2 / total_df + level_variance**2 / level_df)
    return Variance(np.sqrt(total), df)


def shrunk(variance: Floats, df: Floats) -> tuple[Floats, Floats]:
    """Shrink variances towards a common value. Return the new variances and degrees of freedom.

    The method is in Smyth 2004, section 3.
    """
    prior_df, common = _prior(variance, df)
    if not prior_df:
        return variance, df
    expected, own = prior_df * common, df * variance
    # The upper tail of F with df and prior_df degrees of freedom.
    tail = special.betainc(prior_df / 2, df / 2, expected / (expected + own))
    weight = np.where(tail < REJECTED, 0.0, prior_df)
    return (weight * common + df * variance) / (weight + df), weight + df


def _prior(variance: Floats, df: Floats) -> tuple[float, float]:
    """Return the degrees of freedom and the variance of the prior: Smyth 2004, section 6.2.

    The parameters follow from the mean and the variance of log s², which is distributed as the
    logarithm of s₀² times an F-distributed number. The result's degrees of freedom are at most the
    sum of the degrees of freedom of all points, without the largest.
    """
    if len(variance) < 2:  # noqa: PLR2004 # a single point has no prior
        return 0.0, 1.0
    logs = np.log(variance) - special.digamma(df / 2) + np.log(df / 2)
    mean, spread = _without_top(logs)
    excess = spread - special.polygamma(1, df / 2).mean()
    max_df = df.sum() - df.max()
    half = min(_inverse_trigamma(excess) if excess > 0 else max_df, max_df / 2)
    return 2 * half, float(np.exp(mean + special.digamma(half) - np.log(half)))


def _without_top(values: Floats) -> tuple[float, float]:
    """Estimate the mean and the variance of normal values without using the largest values."""
    kept = np.sort(values)[: len(values) - int(TOP * len(values))]
    if len(kept) == len(values):
        return float(values.mean()), float(values.var(ddof=1))
    part = len(kept) / len(values)
    edge = special.ndtri(part)
    hazard = np.exp(-(edge**2) / 2) / math.sqrt(2 * math.pi) / part
    variance = float(kept.var(ddof=1)) / (1 - edge * hazard - hazard**2)
    return float(kept.mean()) + hazard * math.sqrt(variance), variance


def _inverse_trigamma(value: float) -> float:
    """Solve trigamma(x) = value for x > 0, by Newton's method (Smyth 2004, appendix)."""
    x = 0.5 + 1 / value
    for _ in range(50):
        trigamma = special.polygamma(1, x)
        step = trigamma * (1 - trigamma / value) / special.polygamma(2, x)
        x += step
        if abs(step) < 1e-8 * x:
            break
    return float(x)


def p_values(effect: Floats, margin: Floats, variance: Variance) -> Floats:
    """Return two-sided p-values of the hypothesis that the true effect is at most the margin.

    The p-value of a point without a variance is 1. The test is in McCarthy and Smyth 2009, section
    2.3.
    """
    error, df = variance
    beyond = special.stdtr(df, (margin - np.abs(effect)) / error)
    other_side = special.stdtr(df, -(margin + np.abs(effect)) / error)
    return np.fmin(beyond + other_side, 1)


def adjusted(p: Floats) -> Floats:
    """Return the p-values, adjusted for the number of tests (the false discovery rate).

    Benjamini and Hochberg, Journal of the Royal Statistical Society B 57 (1995). scipy.stats has
    this function too, but takes a second to import.
    """
    falling = np.argsort(-p)
    ranks = np.arange(len(p), 0, -1)
    result = np.empty_like(p)
    result[falling] = np.fmin(np.minimum.accumulate(p[falling] * len(p) / ranks), 1)
    return result


def half_widths(variance: Variance, level: float) -> Floats:
    """Return the half-widths of intervals that contain the true effect with probability 1 - level.

    The half-width is NaN for a point without a variance.
    """
    return special.stdtrit(variance.df, 1 - level / 2) * variance.standard_error
