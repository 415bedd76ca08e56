"""Estimates, by the roofline, how much of a time's change the multiprocessors' clock explains."""

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

CLOCK_REPEATS = 0.01
"""Relative difference up to which two clocks count as equal. The clocks of 405 points on an H200,
read in the stream, differed between sweeps by up to 0.52 %."""

COMPUTE_BOUND = (
    0.1  # up to this fraction of the memory bandwidth, a time depends on the clock in full
)
BUSY_MEMORY = 0.3
"""Fraction of the memory bandwidth. From this fraction on, the smallest share of a time that
depends on the clock is the point's fraction of the arithmetic peak."""

SHARED_BOUND = 0.6
"""Fraction of the measured copy bandwidth up to which the clock may explain a whole time."""

MEMORY_BOUND = 0.9
"""Fraction of the copy bandwidth from which on the clock explains at most `MIN_EXCUSE` of a change,
because the memory does not run at the clock of the multiprocessors and caches."""

MIN_EXCUSE = 0.2


def clock_shares(
    gbytes_per_s: Floats, percent_of_copy: Floats, percent_of_peak: Floats
) -> tuple[Floats, Floats]:
    """Return the smallest and the largest share of each point's time that depends on the clock.

    The arguments have the shape (points, 2), with both sides of each point; NaN means unknown.

    The shares follow the roofline (Williams, Waterman, Patterson 2009): far from the memory
    bandwidth, the whole time depends on the clock; at the bandwidth of a copy, hardly any part of
    the time does. In between, or if the copy was not measured, the smallest share is at least the
    point's fraction of the arithmetic peak. A point without rates counts as bound by the clock.
    """
    copies = 100 * gbytes_per_s / percent_of_copy
    copies = copies[np.isfinite(copies)]
    rates = np.nan_to_num(gbytes_per_s)
    # Without a copy, the highest rate is a lower bound of the bandwidth.
    bandwidth = float(np.median(copies)) if len(copies) else rates.max(initial=0.0) or np.inf
    busy, peak = rates / bandwidth, np.nan_to_num(percent_of_peak) / 100
    high = np.ones_like(busy)
    if len(copies):
        high = np.interp(busy, (SHARED_BOUND, MEMORY_BOUND), (1.0, MIN_EXCUSE))
    low = np.maximum(np.interp(busy, (COMPUTE_BOUND, BUSY_MEMORY), (1.0, 0.0)), peak)
    low = np.minimum(low, high)
    return low.min(axis=1), high.max(axis=1)


def explained(time: Floats, clock: Floats, shares: tuple[Floats, Floats]) -> Floats:
    """Return the part of the clock's shift that cancels most of the time's shift."""
    low, high = shares
    cancelling = np.divide(-time, clock, out=np.zeros_like(time), where=clock != 0)
    return np.clip(cancelling, low, high) * clock


def clock_shift(base_mhz: float | None, new_mhz: float | None) -> float:
    """Return the logarithm of the clock's change; 0 if a clock is not known, or both are equal."""
    if not (base_mhz and new_mhz):
        return 0.0
    shift = math.log(new_mhz / base_mhz)
    return shift if abs(shift) > CLOCK_REPEATS else 0.0
