"""Takes samples until there are enough. `sample` is a callable, so tests can pass a fake clock."""

import math
from collections.abc import Callable, Sequence
from time import perf_counter

import numpy as np

from gpubench.errors import LaunchError
from gpubench.model import Series, Timing
from gpubench.stats.intervals import median_interval

Sample = Callable[[int, int], list[float]]
"""Function that takes samples. The arguments are the number of launches per sample, and the number
of samples. The function returns the time per launch of each sample, in microseconds."""

SHRINKING = 0.9
"""An interval has stopped shrinking if its width exceeds this fraction of its width at half of the
samples. With twice the samples, an interval should shrink to 0.71 of its width."""

LONG = 10
"""Ratio of the time of a launch to the minimum length of a sample, above which the time need not be
estimated exactly."""

WARM_S = 0.02
"""Time of a launch, in seconds, above which the first launch counts as a sample, too. On an H200,
the first of four launches of 10 to 75 ms took as long as each of the other three launches (72
visits, median of the differences 0.002 %)."""

THREAD_TURNS = 3  # number of launches with each number of threads, in each of two passes

CLEARLY_SLOWER = 1.5  # ratio to the fastest time above which fewer threads are not tried
EQUALLY_FAST = 1.05  # ratio to the fastest time up to which more threads are preferred

STEP_DEVICE_S = 0.01
"""Device time between two checks of the interval, once a round has its minimum device time."""


def collect(
    sample: Sample,
    timing: Timing,
    max_launches: int,
    expected_us: float = math.inf,
    first_us: float | None = None,
    clock: Callable[[], float] = perf_counter,
    min_launches: int = 1,
) -> Series:
    """Take samples until the policy `timing` requires no more, and return the samples.

    The first launches warm up the device and give an estimate. The times of these launches do not
    count, unless the measured time and the expected time both exceed `WARM_S`. (If only the
    measured time is long, the host has delayed a short launch.) `first_us` is the time of the
    verified launch, if that launch was timed. This time then replaces the time of the very first
    launch. `clock` returns seconds of wall time.

    Raises LaunchError for an impossible time.
    """
    started = clock()
    times = sample(1, 1) if first_us is None else [first_us]
    if min(times[0], expected_us) / 1e6 <= WARM_S:
        # A long launch has warmed up the device and needs no batch, so two launches are saved.
        long = min(times[0], expected_us) > LONG * timing.sample_us
        warm_us = times[0] if long else max(min(sample(1, 2)), 1e-3)
        enough = math.ceil(timing.sample_us / warm_us)
        launches = max(min_launches, min(max_launches, enough))
        times, sample_s = [], warm_us * launches / 1e6
    else:
        launches, sample_s = min_launches, min_launches * times[0] / 1e6
    widths: list[tuple[int, float]] = []

    def spent_s() -> float:
        """Return the wall time since the start, but at least the total time of the samples.

        The first sample may have been taken before the start.
        """
        return max(clock() - started, sum(times) * launches / 1e6)

    while not (reason := _why_stop(times, sample_s, widths, spent_s(), timing)):
        times += sample(launches, _next_batch(len(times), sample_s, spent_s(), timing))
        if wrong := [time_us for time_us in times if not 0 < time_us < math.inf]:
            raise LaunchError(f"timed at {wrong[0]:g} µs a launch: the clock is wrong")
    return Series(times_us=tuple(times), launches_per_sample=launches, stop_reason=reason)


def best_threads(
    time_us: Callable[[int], float], counts: Sequence[int], slow_us: float = math.inf
) -> int:
    """Return the largest number of threads with which a launch is fastest.

    `time_us` measures a launch with a number of threads. Numbers are tried from the largest down,
    until a launch is clearly slower. A launch that takes longer than `slow_us` is measured only
    once for each number of threads.
    """
    times: dict[int, list[float]] = {}
    for count in counts:
        times[count] = [time_us(count)]
        if times[count][0] <= slow_us:  # again, because the first launch started or ended threads
            times[count] = [time_us(count) for _ in range(THREAD_TURNS)]
        if min(times[count]) > CLEARLY_SLOWER * min(map(min, times.values())):
            break
    for count in times:  # a second pass, so that a disturbance does not affect only one number
        if times[count][0] <= slow_us:
            times[count] += [time_us(count) for _ in range(THREAD_TURNS)]
    medians = {count: float(np.median(taken)) for count, taken in times.items()}
    return max(n for n, us in medians.items() if us <= EQUALLY_FAST * min(medians.values()))


def _least(sample_s: float, timing: Timing) -> int:
    """Return the minimum number of samples of a round."""
    slow = sample_s > timing.slow_launch_s
    return timing.round_few_samples if slow else timing.round_samples


def _next_batch(have: int, sample_s: float, wall_s: float, timing: Timing) -> int:
    """Return the number of samples to take before the interval is checked again.

    The first batch has the minimum number of samples. The next batch fills the rest of the round's
    device time. Later batches take `STEP_DEVICE_S` each. The remaining wall time limits the number
    of samples, because flushing a large cache takes far longer than the sample after it.
    """
    if have < (min_samples := _least(sample_s, timing)):
        return min_samples - have
    missing_s = timing.round_device_s - have * sample_s
    step = math.ceil((missing_s if missing_s > 0 else STEP_DEVICE_S) / sample_s)
    room = (timing.round_wall_s - wall_s) * have / wall_s if wall_s > 0 else step
    return max(1, min(step, math.ceil(room)))


def _why_stop(
    times: list[float],
    sample_s: float,
    widths: list[tuple[int, float]],
    wall_s: float,
    timing: Timing,
) -> str | None:
    """Return why sampling stops, or None if it goes on. Append the interval's width to `widths`."""
    if len(times) < _least(sample_s, timing):
        return None
    if wall_s >= timing.round_wall_s:
        return "time limit"
    if len(times) < timing.round_samples or len(times) * sample_s < timing.round_device_s:
        return None
    low, median, high = median_interval(times)
    width = (high - low) / 2 / median
    if width <= timing.precision:
        return "precise"
    earlier = [w for count, w in widths if count <= len(times) // 2]
    widths.append((len(times), width))
    shrinking = not earlier or width <= SHRINKING * earlier[-1]
    return None if shrinking else "interval stopped shrinking"
