"""The gated batch: CUDA events round launches that were all enqueued before the first one ran.

From Python an event pair round a launch mostly times the host. Here a gate kernel keeps the stream
busy while start event, launches and stop event are enqueued; then the device runs through them at
its own pace, and (elapsed − what a sample takes beyond its launches) ÷ launches is the time per
launch in a stream. Whether the gate held is checked: the start event must still be pending when the
stop event has been enqueued.
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from itertools import islice, repeat
from typing import Any, NamedTuple

from gpubench.errors import LaunchError

MAX_ATTEMPTS = 10
"""Of a sample whose gate was too short; each next one is twice as long."""

MAX_IN_FLIGHT = 512
"""Launches enqueued at once: the driver's queue holds about 1024, and a full one blocks the host
while the gate runs out."""

GROUP_US = 50_000.0
"""Samples enqueued together take about this long, so that progress and Ctrl-C come through."""

MARGIN = 1.5
"""Gate over the enqueuing time: the lower median of the last `RECENT` samples. Not their largest: a
kernel's first launch loads it, which takes milliseconds, and gates of that length add up."""

RECENT = 9

FIRST_ENQUEUE_US = 100.0
"""Enqueuing a sample, before any was seen."""

MANY = 64
CALIBRATION_SAMPLES = 50


class Sample(NamedTuple):
    """The events of an enqueued sample."""

    start: Any
    stop: Any
    held: bool
    """Whether the gate outlasted the enqueuing."""


class BlockedBatchTimer:
    """Times launches in a stream. `stream` makes events and opens gates; see `CudaStream`."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._enqueue_us: defaultdict[int, deque[float]] = defaultdict(
            lambda: deque([FIRST_ENQUEUE_US], maxlen=RECENT)
        )
        """What enqueuing so many launches took, lately."""

        self._clocks_mhz: list[float] = []
        self.overhead_us = 0.0
        """What a sample takes beyond its launches, between its two events."""

        self.void_samples = 0
        """Samples taken again because the gate was too short."""

    def take_clock_mhz(self) -> float | None:
        """The median multiprocessor clock of the samples since the last call."""
        clocks, self._clocks_mhz = self._clocks_mhz, []
        return statistics.median(clocks) if clocks else None

    def calibrate(self, launch: Callable[[], None]) -> None:
        """Measure `overhead_us` with a kernel that does next to nothing.

        A sample of L launches takes overhead + L·τ; one launch and many tell the two apart. Without
        this a launch timed alone would seem 2 µs longer than the same launch timed among many.
        """
        self.overhead_us = 0.0
        turns = repeat(launch)
        single_us = statistics.median(self.sample(turns, 1, CALIBRATION_SAMPLES))
        many_us = statistics.median(self.sample(turns, MANY, CALIBRATION_SAMPLES))
        self.overhead_us = max(0.0, (single_us - many_us) * MANY / (MANY - 1))

    def sample(
        self,
        turns: Iterator[Callable[[], None]],
        launches: int,
        count: int,
        before: Callable[[], None] | None = None,
    ) -> list[float]:
        """Time `count` samples of `launches` launches taken from `turns`: microseconds per launch.

        `before` is enqueued ahead of each sample, outside its time. Raises LaunchError if no gate
        holds.
        """
        times: list[float] = []
        sample_us, failures = 0.0, 0
        while len(times) < count:
            group = self._group_size(launches, sample_us, count - len(times))
            samples = [
                self._enqueue(turns, launches, before, sample_us * (index > 0), failures)
                for index in range(group)
            ]
            self._stream.synchronize()
            held = [sample for sample in samples if sample.held]
            self.void_samples += len(samples) - len(held)
            for sample in held:
                sample_us = self._stream.elapsed_us(sample.start, sample.stop)
                times.append((sample_us - self.overhead_us) / launches)
                if clock := self._stream.clock_mhz(sample.start, sample.stop):
                    self._clocks_mhz.append(clock)
            failures = 0 if held else failures + 1
            if failures == MAX_ATTEMPTS:
                raise LaunchError(
                    f"no gate held while {launches} launches were enqueued: the host is too slow"
                )
        return times

    def _group_size(self, launches: int, sample_us: float, wanted: int) -> int:
        """Samples to enqueue before waiting; one while their length is not known."""
        if not sample_us:
            return 1
        return max(1, min(wanted, MAX_IN_FLIGHT // launches, int(GROUP_US / sample_us)))

    def _enqueue(
        self,
        turns: Iterator[Callable[[], None]],
        launches: int,
        before: Callable[[], None] | None,
        behind_us: float,
        failures: int,
    ) -> Sample:
        """Enqueue a sample behind a gate, or behind `behind_us` of work that is as good as one.

        The gate is doubled for each of the failures before.
        """
        recent_us = self._enqueue_us[launches]
        needed_us = MARGIN * statistics.median_low(recent_us) * 2**failures
        if before:
            before()
        if needed_us > behind_us:
            self._stream.gate(needed_us)
        began = time.perf_counter_ns()
        start = self._stream.begin()
        for launch in islice(turns, launches):
            launch()
        stop = self._stream.end()
        held = not start.done
        recent_us.append((time.perf_counter_ns() - began) / 1e3)
        return Sample(start, stop, held)
