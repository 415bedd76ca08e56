"""Median polish, which estimates the effect of a round on all its points and subtracts the effect.

The effect of a round is the median, over the points, of the difference between the point's time in
that round and the point's median (Tukey, Exploratory Data Analysis, 1977, chapter 11).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpubench.stats.intervals import RobustMean, median_scale, robust_mean

Floats = NDArray[np.float64]

MIN_POINTS = 6
"""Minimum number of points from which the effect of a round is estimated. Fewer points have too
much noise."""

STEPS = 3
"""Number of iterations of the polish. After two iterations, the effects of recorded sweeps change
by less than 0.01 %."""

UNEVEN = 4.0
"""A round is left out if its scatter exceeds the median scatter of all rounds by this factor. A
disturbance then slowed the round's points unequally, so its effect cannot be removed."""

UNEVEN_SCATTER = 0.005
"""A round is kept if the scatter of the logarithms of its times is at most this value."""

MIN_KEPT = 3
"""Minimum number of rounds of a point that are kept when other rounds are left out."""

SCATTER_QUANTILE = 0.8
"""Quantile of a round's residuals that is used as the round's scatter. A disturbance that slows a
fifth of the points therefore shows. A round in which some points are faster does not count as
disturbed: in the other rounds, these points ran at the slower of two speeds."""


class Polished(NamedTuple):
    """Times of points after the effects of the rounds were subtracted."""

    logs: Floats
    """Logarithms of times without the effects, of shape (points, rounds). An element is NaN if
    there is no time, or if the round is left out."""

    effects: Floats
    """Effect of each round on the logarithm of a time, relative to the robust mean of all
    rounds."""

    left_out: NDArray[np.bool_]
    """Whether each round is left out, because its disturbance was uneven."""

    set_aside: Floats
    """Logarithms of the measured times in the rounds that are left out. All other elements are
    NaN."""

    scatter: float
    """Robust standard deviation of the effects."""

    level: RobustMean
    """Mean effect of the rounds that were kept, with its standard error. This mean is subtracted
    from the effects. The level that all points share has the same standard error."""


def polish(logs: Floats) -> Polished:
    """Remove the effect of each round on all points.

    `logs` has the shape (points, rounds), with NaN where a point has no time. Each row has at least
    one time. A round is not changed if fewer than `MIN_POINTS` of its points have a time in a
    second round, too.
    """
    rounds = logs.shape[1]
    effects, left_out = np.zeros(rounds), np.zeros(rounds, bool)
    repeated = logs[np.isfinite(logs).sum(axis=1) > 1]
    shared = np.isfinite(repeated).sum(axis=0) >= MIN_POINTS
    if shared.sum() < 2:  # noqa: PLR2004 # one round has nothing to be compared with
        aside = np.full_like(logs, np.nan)
        return Polished(logs, effects, left_out, aside, 0.0, RobustMean(0.0, 0.0, 0.0))
    for _ in range(STEPS):
        effects = effects + np.where(shared, row_medians(_residuals(repeated, effects).T), 0.0)
    residuals = _residuals(repeated, effects)
    scatter = np.array([_quantile(column, SCATTER_QUANTILE) for column in residuals.T])
    usual = max(UNEVEN * float(np.median(scatter[shared])), UNEVEN_SCATTER)
    left_out = shared & (scatter > usual)
    if (shared & ~left_out).sum() < MIN_KEPT:
        left_out[:] = False
    level = robust_mean(effects[shared & ~left_out])
    effects = np.where(shared, effects - level.mean, 0.0)
    polished = logs - effects
    enough = np.isfinite(polished[:, ~left_out]).sum(axis=1) >= MIN_KEPT
    aside = left_out & enough[:, None]
    return Polished(
        np.where(aside, np.nan, polished),
        effects,
        left_out,
        np.where(aside, logs, np.nan),
        median_scale(effects[shared & ~left_out]),
        level,
    )


def row_medians(values: Floats) -> Floats:
    """Return the median of each row, ignoring NaNs. The median of a row with only NaNs is 0."""
    count = np.isfinite(values).sum(axis=1)
    ordered, rows = np.sort(values, axis=1), np.arange(len(values))  # NaNs last
    last = np.maximum(count - 1, 0)
    middle = (ordered[rows, last // 2] + ordered[rows, last - last // 2]) / 2
    return np.where(count > 0, middle, 0.0)


def _residuals(logs: Floats, effects: Floats) -> Floats:
    values = logs - effects
    return values - row_medians(values)[:, None]


def _quantile(values: Floats, quantile: float) -> float:
    finite = values[np.isfinite(values)]
    return float(np.quantile(finite, quantile)) if len(finite) else 0.0
