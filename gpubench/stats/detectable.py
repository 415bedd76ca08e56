"""What a comparison is blind to: the smallest slow-downs that it finds in nine of ten cases."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from gpubench.stats.moderated import Floats, Variance
from gpubench.stats.modes import NEAR, Flags, Modes

COVERED = 0.95
"""Part of the points, or kernels, whose slow-down these rounds show, where `diff` promises 0.9."""


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
    error: Floats,
    variance: Variance,
    margin: Floats,
    q: float,
    modes: Modes,
    others: Floats,
    machine: float,
) -> Detectable:
    """Return what would have been found, from the points' errors.

    `kernels` has the kernel of each point; None: of the BLAS. A slow-down is found beyond the limit
    of the test plus the `error` that the point had. A kernel is found if half of its points are.
    The two speeds of other points explain that of a single point up to `others`. If half of the
    points or more slowed, `machine` of it is attributed to the machine.
    """
    names = np.array([name or "" for name in kernels])
    own = names != ""
    if not own.any():
        return Detectable()

    def sizes(points: Flags, number: float, hides: Floats) -> Floats:
        level = q * max(1.0, number) / len(names)
        deviation = special.stdtrit(variance.df[points], 1 - level)
        limit = margin[points] + variance.standard_error[points] * deviation
        size = np.maximum(limit, hides[points]) + np.abs(error[points])
        return np.asarray(np.nan_to_num(size, nan=np.inf))

    def of_set(points: Flags) -> tuple[float, float]:
        size = np.median(sizes(points, points.sum() / 2, modes.hides))
        by_machine = machine * (2 * points.sum() >= own.sum())
        return float(size + by_machine), float(np.median(modes.aside[points]))

    alone = sizes(own, 1, np.maximum(modes.hides, others))
    by_kernel = [of_set(names == name) for name in np.unique(names[own])]
    logs = {
        "everything": _covering(np.array([of_set(own)])),
        "kernel": _covering(np.array(by_kernel)),
        "point": _covering(np.stack([alone, modes.aside[own]], axis=1)),
    }
    return Detectable(**{name: float(np.expm1(log)) for name, log in logs.items() if log < np.inf})


def _covering(lines: Floats) -> float:
    """Return the smallest slow-down that is found in COVERED of the lines.

    A line has the size from which on a slow-down is found, and the size of a round that was left
    out, near which no slow-down is found.
    """
    sizes, aside = lines.T
    tries = np.sort(np.append(sizes, (1 + NEAR) * aside))
    for size in tries[tries >= np.quantile(sizes, COVERED, method="higher")]:
        near = np.abs(size - aside) < NEAR * aside
        if np.mean((size >= sizes) & ~near) >= COVERED:
            return float(size)
    return np.inf
