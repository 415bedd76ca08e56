"""Estimates, by the roofline model, how much of a time's change the GPU's clock explains."""

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

CLOCK_REPEATS = 0.01
"""Relative difference up to which two clocks count as equal. On an H200, the clock frequencies of
405 points, which were read in the CUDA stream, differed between sweeps by up to 0.52 %."""

COMPUTE_BOUND = (
    0.1  # up to this fraction of the memory bandwidth, the whole time depends on the clock
)
BUSY_MEMORY = 0.3
"""Fraction of the memory bandwidth. If a point reaches this fraction, the smallest share of its
time that depends on the clock is the point's fraction of the arithmetic peak."""

SHARED_BOUND = 0.6
"""Fraction of the measured copy bandwidth up to which the clock may explain the whole change of a
time."""

MEMORY_BOUND = 0.9
"""Fraction of the copy bandwidth from which on the clock explains at most the share `MIN_EXCUSE` of
a change, because the memory does not run at the clock of the multiprocessors and caches."""

MIN_EXCUSE = 0.2


def clock_shares(
    gbytes_per_s: Floats, percent_of_copy: Floats, percent_of_peak: Floats
) -> tuple[Floats, Floats]:
    """Return the smallest and the largest share of each point's time that depends on the clock.

    The arguments have the shape (points, 2), with a column for each side of the comparison; NaN
    means unknown.

    The shares follow the roofline (Williams, Waterman, Patterson 2009). If a point needs little
    memory bandwidth, its whole time depends on the clock. If a point reaches the bandwidth of a
    copy, hardly any part of its time depends on the clock. Between these bandwidths, or if the copy
    was not measured, the smallest share is at least the point's fraction of the arithmetic peak. If
    a point's rates are unknown, its whole time counts as dependent on the clock.
    """
    copies = 100 * gbytes_per_s / percent_of_copy
    copies = copies[np.isfinite(copies)]
    rates = np.nan_to_num(gbytes_per_s)
    # If no copy was measured, the highest rate is a lower bound of the bandwidth.
    bandwidth = float(np.median(copies)) if len(copies) else rates.max(initial=0.0) or np.inf
    busy, peak = rates / bandwidth, np.nan_to_num(percent_of_peak) / 100
    high = np.ones_like(busy)
    if len(copies):
        high = np.interp(busy, (SHARED_BOUND, MEMORY_BOUND), (1.0, MIN_EXCUSE))
    low = np.maximum(np.interp(busy, (COMPUTE_BOUND, BUSY_MEMORY), (1.0, 0.0)), peak)
    low = np.minimum(low, high)
    return low.min(axis=1), high.max(axis=1)


def explained(time: Floats, clock: Floats, shares: tuple[Floats, Floats]) -> Floats:
    """Return the part of the clock's shift, within `shares`, that best cancels the time's shift."""
    low, high = shares
    cancelling = np.divide(-time, clock, out=np.zeros_like(time), where=clock != 0)
    return np.clip(cancelling, low, high) * clock


def clock_shift(base_mhz: float | None, new_mhz: float | None) -> float:
    """Return the logarithm of the clocks' ratio, new to base; 0 if it is unknown or negligible."""
    if not (base_mhz and new_mhz):
        return 0.0
    shift = math.log(new_mhz / base_mhz)
    return shift if abs(shift) > CLOCK_REPEATS else 0.0
