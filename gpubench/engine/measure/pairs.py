"""Measures a kernel and a library in turns at the power limit, to compare neighbouring visits.

At the power limit, the clock keeps changing for seconds, and differs between visits. The power
regulator affects both visits of a pair in the same way. So the ratio of neighbouring visits
scatters less than the ratio of medians (docs/measuring.md has figures).
"""

from collections.abc import Callable, Sequence
from time import perf_counter

from gpubench.backends import Kernel
from gpubench.model import PairedTimes, Series

SETTLE_S = 5.0  # maximum time to heat until clock and power are stationary
WINDOW_S = 0.4  # length of each of the windows whose times and energies are compared

STATIONARY = 0.004
"""Maximum change of stationary kernels, as a fraction. The mean of the last two windows is compared
with the mean of the two windows before, in time and in energy per launch."""

VISIT_S = 0.35
"""Time of a visit. The regulator takes 0.1 to 0.3 s to react to a change of the load."""

PAIRS = 6  # number of pairs in each process; even, so that each side is first in half of the pairs

PROCESSES = 3
"""Number of processes. Ratios differ more between processes than between the pairs of one
process."""

PAIR_S = PROCESSES * (SETTLE_S + 2 * PAIRS * VISIT_S)
"""Expected time to measure a kernel and a library in turns. On an H200, heating took the whole
SETTLE_S."""


def paired(
    kernel: Kernel, library: Kernel, clock: Callable[[], float] = perf_counter
) -> PairedTimes:
    """Launch both kernels until they are stationary, then measure them in turns (ABBA).

    Raises DoesNotFitError if launches are too short for a sustained load, and LaunchError.
    """
    _settle(kernel, library, clock)
    visits: tuple[list[Series], list[Series]] = ([], [])
    for pair in range(PAIRS):
        for place in (0, 1) if pair % 2 == 0 else (1, 0):
            visits[place].append((kernel, library)[place].sustain(0.0, VISIT_S))
    times_us = [tuple(series.median_us for series in side) for side in visits]
    joules = [mean_joules([series.joules for series in side]) for side in visits]
    return PairedTimes(
        times_us=times_us[0],
        library_times_us=times_us[1],
        joules=joules[0],
        library_joules=joules[1],
    )


def _settle(kernel: Kernel, library: Kernel, clock: Callable[[], float]) -> None:
    """Launch both kernels in turns until they are stationary, or for `SETTLE_S`."""
    began_s = clock()
    windows: list[tuple[float, float]] = []
    while clock() - began_s < SETTLE_S and not _is_stationary(windows):
        series = [each.sustain(0.0, WINDOW_S / 2) for each in (kernel, library)]
        energy = [taken.joules or 0.0 for taken in series]
        windows.append((sum(taken.median_us for taken in series), sum(energy)))


def _is_stationary(windows: list[tuple[float, float]]) -> bool:
    if len(windows) < 4:  # noqa: PLR2004 # two windows, and two before them
        return False
    for values in zip(*windows[-4:], strict=True):
        earlier, later = sum(values[:2]), sum(values[2:])
        if abs(later - earlier) > STATIONARY * earlier:
            return False
    return True


def mean_joules(values: Sequence[float | None]) -> float | None:
    """Return the mean of the known energies, or None if no energy is known."""
    numbers = [value for value in values if value is not None]
    return sum(numbers) / len(numbers) if numbers else None
