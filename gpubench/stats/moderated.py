"""The moderated t-test: each point's variance, steadied by what all points have in common.

Thousands of points with a few rounds each are the daily case of genomics, whose method this is:
Smyth, Statistical Applications in Genetics and Molecular Biology 3 (2004), article 3 (limma); the
test against a threshold is `treat` of McCarthy and Smyth, Bioinformatics 25 (2009). The robust fit
of Phipson and others, Annals of Applied Statistics 10 (2016), which leaves out the wildest points,
is not used: here those are the points with modes, and they should count. Pure, on arrays.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

Floats = NDArray[np.float64]

LEAST_SD = 1e-5
"""Standard deviation, of logarithms, below which rounds repeat only because times are rounded."""


class Rounds(NamedTuple):
    """What the rounds of each point say, on one side: arrays with an element a point."""

    number: Floats
    """Of rounds."""

    mean: Floats
    """Of the logarithms."""

    squares: Floats
    """Sum of the squared deviations from the mean."""

    low: Floats
    high: Floats
    gap: Floats
    """Largest step between neighbours, once the rounds are sorted."""

    group: Floats
    """The wider of the two groups that this step divides."""


def summarize(logs: Floats, counts: NDArray[np.int64]) -> Rounds:
    """Statistics of points whose rounds stand one after another, `counts` of each, none 0."""
    point = np.repeat(np.arange(len(counts)), counts)
    logs = logs[np.lexsort((logs, point))]
    ends = np.cumsum(counts)
    starts = ends - counts
    low, high = logs[starts], logs[ends - 1]
    mean = np.add.reduceat(logs, starts) / counts
    squares = np.add.reduceat((logs - mean[point]) ** 2, starts)
    steps = np.diff(logs, append=logs[-1:])
    steps[ends - 1] = 0  # to the next point
    gap = np.maximum.reduceat(steps, starts)
    before = np.where(steps == gap[point], logs, np.inf)
    edge = np.minimum.reduceat(before, starts)  # where the first such step begins
    group = np.maximum(edge - low, high - edge - gap)
    return Rounds(counts.astype(float), mean, squares, low, high, gap, group)


class Variance(NamedTuple):
    """The variance of a difference of means, and its degrees of freedom: an element a point."""

    standard_error: Floats
    df: Floats
    """NaN, as the error: there is nothing to judge by."""


def moderate(
    base: Rounds,
    new: Rounds,
    level_variance: Floats | float = 0.0,
    level_df: Floats | float = np.inf,
) -> Variance:
    """Return the standard error of `new.mean - base.mean`, from each point's rounds and the prior.

    `level_variance` is the variance of what all points share, with `level_df` degrees of freedom;
    Satterthwaite's formula combines both. A point with one round a side has no variance of its own,
    so it gets NaN.
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
    """Variances shrunk towards what they have in common, and the degrees of freedom they have then.

    Smyth 2004, section 3.
    """
    prior_df, common = _prior(variance, df)
    return (prior_df * common + df * variance) / (prior_df + df), prior_df + df


def _prior(variance: Floats, df: Floats) -> tuple[float, float]:
    """Degrees of freedom and variance that all points share: Smyth 2004, section 6.2.

    From mean and variance of log s², which is distributed as log of s₀² times an F. The degrees of
    freedom are no more than the other points have together.
    """
    if len(variance) < 2:  # noqa: PLR2004 # one point has no others to learn from
        return 0.0, 1.0
    logs = np.log(variance) - special.digamma(df / 2) + np.log(df / 2)
    excess = logs.var(ddof=1) - special.polygamma(1, df / 2).mean()
    most = df.sum() - df.max()
    half = min(_inverse_trigamma(excess) if excess > 0 else most, most / 2)
    return 2 * half, float(np.exp(logs.mean() + special.digamma(half) - np.log(half)))


def _inverse_trigamma(value: float) -> float:
    """The x > 0 of trigamma(x) = value, by Newton's method on 1/trigamma (Smyth 2004, appendix)."""
    x = 0.5 + 1 / value
    for _ in range(50):
        trigamma = special.polygamma(1, x)
        step = trigamma * (1 - trigamma / value) / special.polygamma(2, x)
        x += step
        if abs(step) < 1e-8 * x:
            break
    return float(x)


def p_values(effect: Floats, margin: Floats, variance: Variance) -> Floats:
    """Two-sided p-values that the true effect is no larger than the margin; 1 without a variance.

    McCarthy and Smyth 2009, section 2.3.
    """
    error, df = variance
    beyond = special.stdtr(df, (margin - np.abs(effect)) / error)
    other_side = special.stdtr(df, -(margin + np.abs(effect)) / error)
    return np.fmin(beyond + other_side, 1)


def adjusted(p: Floats) -> Floats:
    """p-values adjusted for the false discovery rate over all of them.

    Benjamini and Hochberg, Journal of the Royal Statistical Society B 57 (1995). scipy.stats has it
    too, but takes a second to import.
    """
    falling = np.argsort(-p)
    ranks = np.arange(len(p), 0, -1)
    result = np.empty_like(p)
    result[falling] = np.fmin(np.minimum.accumulate(p[falling] * len(p) / ranks), 1)
    return result


def half_widths(variance: Variance, level: float) -> Floats:
    """Half of each interval that holds the effect with probability 1 - level; NaN: it has none."""
    return special.stdtrit(variance.df, 1 - level / 2) * variance.standard_error
