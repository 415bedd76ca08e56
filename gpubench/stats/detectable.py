"""What a comparison is blind to: the smallest slow-downs that it finds in nine of ten cases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from gpubench.stats.moderated import Floats, Variance

FOUND = 0.9
"""Part of the cases in which a detectable slow-down is found."""


@dataclass(frozen=True, kw_only=True)
class Detectable:
    """Smallest slow-downs that are found in nine of ten cases: 0.05 is 5 %; None: no slow-down."""

    everything: float | None = None
    """Of all points but the BLAS."""

    kernel: float | None = None
    """Of all points of one kernel, in nine of ten kernels."""

    point: float | None = None
    """Of one point, in nine of ten points."""


def smallest(
    kernels: Sequence[str | None],
    variance: Variance,
    margin: Floats,
    q: float,
    hides: Floats,
    hides_alone: Floats,
    hides_all: float,
) -> Detectable:
    """Return what would have been found, from the errors of the points.

    `kernels` has the kernel of each point; None: of the BLAS. `hides` has the slow-down that the
    two speeds of a point would explain, `hides_alone` what those of other points would explain if
    the point slowed alone, and `hides_all` what the machine would explain if all points slowed.
    Kernels and everything are found if half of their points are. Then the largest p-value that
    counts is `q` times their part of all points.
    """
    names = np.array([name or "" for name in kernels])
    own = names != ""

    def sizes(number: float, beyond: Floats) -> Floats:
        level = q * max(1.0, number) / len(names)
        limit = margin + variance.standard_error * special.stdtrit(variance.df, 1 - level)
        missed = variance.standard_error * special.stdtrit(variance.df, FOUND)
        return np.asarray(np.nan_to_num(np.maximum(limit, beyond) + missed, nan=np.inf))

    if not own.any():
        return Detectable()
    sets = [names == name for name in np.unique(names[own])]
    by_kernel = [np.median(sizes(of.sum() / 2, hides)[of]) for of in sets]
    alone = sizes(1, np.maximum(hides, hides_alone))[own]
    every = np.median(sizes(own.sum() / 2, hides)[own]) + hides_all
    kernel, point = (np.quantile(each, FOUND, method="higher") for each in (by_kernel, alone))
    logs = {"everything": every, "kernel": kernel, "point": point}
    return Detectable(**{name: float(np.expm1(log)) for name, log in logs.items() if log < np.inf})
