"""Estimates how much faster or slower the machine became, from points whose code did not change.

Such points are the points of the vendor's BLAS, and of kernels whose source and binary did not
change.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from gpubench.stats.moderated import LEAST_SD
from gpubench.stats.polish import row_medians

Floats = NDArray[np.float64]

MIN_REFERENCES = 2
"""Minimum number of points of the BLAS that show the shift of the BLAS. A single point may have two
speeds."""

MIN_VOTES = 3
"""Minimum number of votes to use the median vote as the machine's shift. The BLAS and each
unchanged kernel have a vote."""

ALIKE = 0.8
"""Fraction of the votes from which the scatter of the votes is computed. These votes are nearest to
the median. The remaining votes may be of kernels with two speeds."""


class Shift(NamedTuple):
    """A shift of the machine, new side minus base, as a logarithm."""

    shift: float
    variance: float
    df: float
    """Degrees of freedom of the variance."""

    library: float = 0.0
    """Shift of the BLAS in addition to `shift`. Unchanged kernels do not have this additional
    shift."""


def machine_shift(
    shifts: Floats,
    errors: Floats,
    blas: NDArray[np.bool_],
    references: NDArray[np.int64],
    sides: tuple[Floats, Floats],
    level: Shift,
    far: float,
) -> Shift:
    """Return the machine's shift, and the variance of a point's difference from this shift.

    `shifts` and `errors` have each point's shift and its standard error. `references` has 0 for
    points of a BLAS that both sides have, a number for each kernel with the same code on both
    sides, and -1 for all other points. `sides` has the logarithms of the times, of shape (points,
    rounds), without the rounds' effects. `level` has the variance of the level that all points
    share.

    The BLAS and each unchanged kernel have a vote, and the machine's shift is the median vote. The
    variance of the shift is computed from the median vote of each round, because the effect of a
    round on all points cancels in a difference from a reference. The scatter of the votes is added
    to this variance, because the machine may have slowed some kernels more than other kernels. If
    there is no unchanged kernel, or if the only such kernel agrees with the BLAS, the shift is the
    result of `shift_by_blas`.
    """
    by_blas = shift_by_blas(
        shifts,
        np.where(references == 0, errors, np.nan),
        blas,
        (sides[0][blas], sides[1][blas]),
        level,
        far,
    )
    numbers = np.unique(references[references >= 0])
    voters = [references == number for number in numbers]
    votes = np.array([np.median(shifts[each]) for each in voters])
    noise = 2 * np.array([np.sqrt((errors[each] ** 2).mean() / each.sum()) for each in voters])
    has_blas = len(votes) > 0 and numbers[0] == 0
    if np.isnan(noise).any() or len(votes) < MIN_VOTES - has_blas:
        return by_blas
    if len(votes) < MIN_VOTES:  # the BLAS, and a kernel that may contradict it
        apart = abs(by_blas.shift - votes[1]) - noise.sum() - far / 2
        shared = float(shared_part(by_blas.shift, votes[1]))
        return _scattered(by_blas._replace(shift=shared), apart, 1) if apart > 0 else by_blas
    middle = float(np.median(votes))
    apart = np.maximum(np.abs(votes - middle) - noise, 0.0)
    scatter = np.quantile(apart, ALIKE, method="lower") / special.ndtri((1 + ALIKE) / 2)
    by_round = [_votes_by_round(logs, voters) for logs in sides]
    if min(map(len, by_round)) < 2:  # noqa: PLR2004 # one round has no scatter
        return by_blas
    library = float(votes[0] - middle) if has_blas and apart[0] > far / 2 else 0.0
    return _scattered(Shift(middle, *_variance(by_round), library), float(scatter), len(votes) - 1)


def _votes_by_round(logs: Floats, voters: Sequence[NDArray[np.bool_]]) -> Floats:
    """Return the median vote of each round in which at least one voter has a time."""
    residuals = logs - row_medians(logs)[:, None]
    votes = np.array(
        [
            np.where(np.isfinite(own).any(axis=0), row_medians(own.T), np.nan)
            for own in (residuals[each] for each in voters)
        ]
    )
    return np.asarray(row_medians(votes.T)[np.isfinite(votes).any(axis=0)])


def _variance(by_round: Sequence[Floats]) -> tuple[float, float]:
    """Return the variance of the difference between two means, and its degrees of freedom.

    The degrees of freedom follow Welch and Satterthwaite's formula.
    """
    parts = [max(float(each.var(ddof=1)), LEAST_SD**2) / len(each) for each in by_round]
    by_df = sum(part**2 / (len(each) - 1) for part, each in zip(parts, by_round, strict=True))
    return sum(parts), sum(parts) ** 2 / by_df


def _scattered(shift: Shift, scatter: float, df: int) -> Shift:
    """Add the scatter of the references to the variance of a shift, and return the shift."""
    variance = shift.variance + scatter**2
    by_df = shift.variance**2 / shift.df + scatter**4 / df
    return shift._replace(variance=variance, df=variance**2 / by_df if by_df else shift.df)


def shift_by_blas(
    shifts: Floats,
    errors: Floats,
    blas: NDArray[np.bool_],
    sides: tuple[Floats, Floats],
    level: Shift,
    far: float,
) -> Shift:
    """Return the machine's shift, estimated from the points of the BLAS.

    The arguments are the same as for `machine_shift`, but `sides` has only the times of the BLAS.
    An error is NaN for a point that cannot be compared with the BLAS.

    The result is the shift of the BLAS if this shift has a smaller variance than the level that all
    points share, or if the BLAS moved by more than `far`. Otherwise the result is the part of the
    shift that the BLAS and the other points share.
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
    by_round = [weights @ logs[:, np.isfinite(logs).all(axis=0)] for logs in sides]
    if min(map(len, by_round)) < 2:  # noqa: PLR2004 # one round has no scatter
        return shared
    variance, df = _variance(by_round)
    if abs(shift) <= far and variance >= level.variance:
        return shared
    return Shift(shift, variance, df)


def shared_part(shift: Any, other: Any) -> Any:
    """Return the smaller of two shifts if both have the same direction, or else 0."""
    smaller = np.where(np.abs(shift) < np.abs(other), shift, other)
    return np.where(shift * other > 0, smaller, 0.0)


def shared_median(shifts: Floats, blas: NDArray[np.bool_]) -> float:
    """Apply `shared_part` to the median shift of BLAS points and the median shift of other points.

    Return 0 if there are no BLAS points, or no other points.
    """
    if blas.all() or not blas.any():
        return 0.0
    return float(shared_part(np.median(shifts[blas]), np.median(shifts[~blas])))
