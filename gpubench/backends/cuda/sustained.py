"""Launches without a pause, and takes samples when clock and power have settled.

The cache is not flushed and no kernel blocks the stream, because the GPU would cool meanwhile. A
mark is a timestamp kernel and an event. Marks are enqueued between the launches, and a sample lasts
from one mark to the next. A mark adds some 4 µs to a sample, which takes milliseconds. Samples are
enqueued ahead. A sample counts if all its launches were enqueued before the device reached the
first launch. Otherwise the device may have waited for the host between launches, and the sample is
dropped.

A separate thread reads the energy counter, because a reading takes milliseconds. If other processes
call the driver, too, a reading takes longer than the launches that are enqueued ahead.
"""

import math
import statistics
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import islice, pairwise
from threading import Event, Thread
from time import perf_counter
from typing import Any

from gpubench.backends.cuda.timer import MAX_IN_FLIGHT
from gpubench.errors import DoesNotFitError
from gpubench.model import Series

LEAST_AHEAD = 2  # minimum number of samples that are enqueued ahead
AHEAD_US = 40_000.0  # duration of the samples in the queue, by which the host may be late

MAX_LAUNCHES = MAX_IN_FLIGHT // LEAST_AHEAD

SAMPLE_US = 5000.0  # minimum duration of a sample, as far as the queue has room for its launches

MAX_SAMPLES = 2000  # maximum number of samples. The stream keeps the timestamps of 2048 marks

READ_EVERY_S = 0.02

Reading = tuple[float, float]  # the time of a reading in seconds, and the energy counter in joules


@contextmanager
def metered(
    energy_j: Callable[[], float | None], clock: Callable[[], float]
) -> Iterator[list[Reading]]:
    """Yield a list to which a thread appends a reading every `READ_EVERY_S`.

    The list stays empty if the device has no energy counter.
    """
    readings: list[Reading] = []
    ended = Event()

    def read() -> None:
        while (joules := energy_j()) is not None:
            readings.append((clock(), joules))
            if ended.wait(READ_EVERY_S):
                return

    reader = Thread(target=read, daemon=True)
    reader.start()
    try:
        yield readings
    finally:
        ended.set()
        reader.join()


Meter = Callable[
    [Callable[[], float | None], Callable[[], float]], AbstractContextManager[Sequence[Reading]]
]
"""Type of `metered`, and of the functions that replace `metered` in tests."""


def sustain(
    stream: Any,
    rotation: Iterator[Callable[[], None]],
    launch_us: float,
    heat_s: float,
    timed_s: float,
    energy_j: Callable[[], float | None],
    clock: Callable[[], float] = perf_counter,
    meter: Meter = metered,
) -> tuple[Series, float | None]:
    """Launch without timing for `heat_s` seconds, and then with timing for `timed_s` seconds.

    Return the samples, and the median clock in MHz during the samples. `launch_us` is an estimate
    of a launch's time. Raises DoesNotFitError if half of the samples or more are dropped, because
    launches are too short for the host to stay ahead of the GPU.
    """
    launches = max(1, min(MAX_LAUNCHES, math.ceil(SAMPLE_US / launch_us)))
    enough = math.ceil(AHEAD_US / (launches * launch_us))
    ahead = max(LEAST_AHEAD, min(MAX_IN_FLIGHT // launches, enough))
    marks = deque([stream.record_start()])
    samples: list[tuple[Any, Any]] = []
    taken = 0
    with meter(energy_j, clock) as readings:
        began = clock()
        while not taken or (taken < MAX_SAMPLES and clock() - began < heat_s + timed_s):
            spent_s = clock() - began
            for launch in islice(rotation, launches):
                launch()
            start, stop = marks[-1], stream.record_start()
            marks.append(stop)
            if spent_s >= heat_s:
                taken += 1
                if not start.done:
                    samples.append((start, stop))
            if len(marks) > ahead:
                stream.wait(marks.popleft())
        stream.synchronize()
    if 2 * len(samples) <= taken:
        raise DoesNotFitError(
            f"launches of {launch_us:.3g} µs are too short for --state sustained: "
            "the GPU waits for the host"
        )
    times_us = tuple(stream.elapsed_us(*sample) / launches for sample in samples)
    clocks_mhz = [mhz for sample in samples if (mhz := stream.clock_mhz(*sample))]
    power_w = mean_power_w([reading for reading in readings if reading[0] >= began + heat_s])
    series = Series(
        times_us=times_us,
        launches_per_sample=launches,
        stop_reason="sustained",
        joules=power_w and power_w * statistics.median(times_us) / 1e6,
    )
    return series, statistics.median(clocks_mhz) if clocks_mhz else None


def mean_power_w(readings: Sequence[Reading]) -> float | None:
    """Return the mean power between the first and the last change of the energy counter.

    Return None if the counter changed less than twice.
    """
    changes = [after for before, after in pairwise(readings) if after[1] != before[1]]
    if len(changes) < 2:  # noqa: PLR2004 # the ends of an interval
        return None
    (start_s, start_j), (end_s, end_j) = changes[0], changes[-1]
    return (end_j - start_j) / (end_s - start_s)
