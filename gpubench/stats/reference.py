"""The shift of the machine, from points whose code is the same on both sides: the vendor's BLAS."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpubench.stats.moderated import LEAST_SD

Floats = NDArray[np.float64]

MIN_REFERENCES = 2
"""Minimum number of points that show the machine's shift: a single point may have two speeds."""


class Shift(NamedTuple):
    """A shift of the machine, new side less base, as a logarithm."""

    shift: float
    variance: float
    df: float
    """Degrees of freedom of the variance."""


def machine_shift(
    shifts: Floats,
    errors: Floats,
    blas: NDArray[np.bool_],
    sides: tuple[Floats, Floats],
    level: Shift,
    far: float,
) -> Shift:
    """Return the machine's shift, and how exactly the points can be compared with it.

    `shifts` and `errors` have each point's shift and its standard error; NaN: the points cannot be
    compared with the BLAS. `sides` has the logarithms of the BLAS's times, of shape (points,
    rounds), without the rounds' effects. `level` has the variance of the level that all points
    share.

    What a round did to all points cancels in a difference from the BLAS, which is judged where the
    level is less exactly known, and where the BLAS moved by more than `far`. Otherwise the shift is
    what the BLAS and the other points share.
    """
    shared = Shift(shared_median(shifts, blas), level.variance, level.df)
    references, own = shifts[blas], errors[blas]
    if len(references) < MIN_REFERENCES or blas.all() or np.isnan(own).any():
        return shared
    weights = np.maximum(own, np.median(own)) ** -2.0
    weights /= weights.sum()
    shift = float(weights @ references)
    if (np.abs(references - shift) > far / 2 + 2 * own).any():
        return shared  # the BLAS points disagree
    variance, by_df = 0.0, 0.0
    for logs in sides:
        complete = logs[:, np.isfinite(logs).all(axis=0)]
        if complete.shape[1] < 2:  # noqa: PLR2004 # no scatter
            return shared
        by_round = weights @ complete
        part = max(float(by_round.var(ddof=1)), LEAST_SD**2) / len(by_round)
        variance, by_df = variance + part, by_df + part**2 / (len(by_round) - 1)
    if abs(shift) <= far and variance >= level.variance:
        return shared
    return Shift(shift, variance, variance**2 / by_df)


def shared_part(shift: Any, other: Any) -> Any:
    """Return what two shifts have in common: the smaller shift, if they have the same direction."""
    smaller = np.where(np.abs(shift) < np.abs(other), shift, other)
    return np.where(shift * other > 0, smaller, 0.0)


def shared_median(shifts: Floats, blas: NDArray[np.bool_]) -> float:
    """Return what the median point and the median BLAS point share; 0 if either is missing."""
    if blas.all() or not blas.any():
        return 0.0
    return float(shared_part(np.median(shifts[blas]), np.median(shifts[~blas])))
