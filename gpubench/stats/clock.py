"""Estimates how much of a time's change comes from the GPU's clock, by the roofline model."""

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

CLOCK_REPEATS = 0.01
"""Two clock frequencies count as equal up to this relative difference. On an H200, the frequencies
of 405 points differed between sweeps by up to 0.52 %. The frequencies were read in the CUDA
stream."""

COMPUTE_BOUND = 0.1
"""Fraction of the memory bandwidth. Up to this fraction, the whole time depends on the clock."""

BUSY_MEMORY = 0.3
"""Fraction of the memory bandwidth. If a point reaches this fraction, the point's fraction of the
arithmetic peak is the smallest part of its time that depends on the clock."""

SHARED_BOUND = 0.6
"""Fraction of the measured copy bandwidth. Up to this fraction, a change of the clock may explain
the whole change of a time."""

MEMORY_BOUND = 0.9
"""Fraction of the copy bandwidth. From this fraction on, the clock explains at most the part
`MIN_EXCUSE` of a change. The reason is that the memory has another clock than the multiprocessors
and caches."""

MIN_EXCUSE = 0.2


def clock_shares(
    gbytes_per_s: Floats, percent_of_copy: Floats, percent_of_peak: Floats
) -> tuple[Floats, Floats]:
    """Return the smallest and the largest fraction of each point's time that depends on the clock.

    The arguments have the shape (points, 2), with a column for each side of the comparison. NaN
    stands for an unknown value.

    The fractions follow the roofline (Williams, Waterman, Patterson 2009). If a point needs little
    memory bandwidth, its whole time depends on the clock. If a point reaches the bandwidth of a
    copy, hardly any part of its time depends on the clock. Between these bandwidths, or if the copy
    was not measured, the smallest fraction is at least the point's part of the arithmetic peak. If
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
    """Return the shift of each time that the shift of the clock explains.

    A part of the clock's shift, between the two `shares`, is chosen so that it best cancels the
    shift of the time.
    """
    low, high = shares
    cancelling = np.divide(-time, clock, out=np.zeros_like(time), where=clock != 0)
    return np.clip(cancelling, low, high) * clock


def clock_shift(base_mhz: float | None, new_mhz: float | None) -> float:
    """Return the logarithm of the new clock frequency divided by the base's clock frequency.

    Return 0 if the ratio is unknown or negligible.
    """
    if not (base_mhz and new_mhz):
        return 0.0
    shift = math.log(new_mhz / base_mhz)
    return shift if abs(shift) > CLOCK_REPEATS else 0.0
