"""Times blocked batches, whose launches are all enqueued before the first launch runs.

In Python, a pair of events around a launch mostly times the host. A blocked batch therefore begins
with a blocking kernel, which keeps the stream busy while the start event, the launches and the stop
event are enqueued. The device then runs the launches without waiting for the host. The time per
launch is (time between the events − overhead of a sample) ÷ launches. Each sample is checked: its
start event must still be pending when its stop event has been enqueued, and the sample must be
longer than the overhead.
"""

import statistics
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from itertools import islice, repeat
from time import perf_counter_ns
from typing import Any, NamedTuple

from gpubench.errors import DeviceUnavailableError, LaunchError

MAX_ATTEMPTS = 10
"""Maximum number of attempts if the blocking kernel is too short. Each attempt blocks twice as long
as the attempt before."""

MAX_IN_FLIGHT = 512
"""Maximum number of launches enqueued at once. The driver's queue has room for about 1024. A full
queue blocks the host, and the blocking kernel would end meanwhile."""

GROUP_US = 50_000.0
"""Total duration of the samples that are enqueued together. Ctrl-C is handled after such a
group."""

MARGIN = 1.5
"""Ratio of the blocking time to the enqueuing time. The enqueuing time is the lower median of the
last `RECENT` samples, not their maximum. The first launch of a kernel takes milliseconds, because
it loads the kernel. With the maximum, this launch would make all blocking times long."""

RECENT = 9  # number of samples whose enqueuing times are kept

WAITING_US = (5_000.0, 100_000.0)
"""Blocking times of the test whether a launch waits for the device. The second, longer time is for
launches that are slow to enqueue."""

FIRST_ENQUEUE_US = 100.0  # time to enqueue a sample, assumed before the first sample

CALIBRATION_LAUNCHES = 64
CALIBRATION_SAMPLES = 50

MAX_OVERHEAD_US = 10.0
"""Maximum overhead of a sample: a tenth of the shortest sample. Calibrations on an H200 give 2.1 to
2.3 µs, that is ±3.5 %. At this accuracy, an overhead of 10 µs causes an error of at most 0.4 % in
the shortest sample."""

MAX_CALIBRATIONS = 3  # number of calibrations before an overhead above the limit is an error


class Sample(NamedTuple):
    """The events of an enqueued sample."""

    start: Any
    stop: Any
    valid: bool  # whether the stream was still blocked when the whole sample had been enqueued


class BlockedBatchTimer:
    """Times launches in a stream that can be blocked and that records events (`CudaStream`)."""

    def __init__(self, stream: Any, host_clock_ns: Callable[[], int] = perf_counter_ns) -> None:
        self._stream = stream
        self._host_clock_ns = host_clock_ns
        self._enqueue_us: defaultdict[int, deque[float]] = defaultdict(
            lambda: deque([FIRST_ENQUEUE_US], maxlen=RECENT)
        )
        """Recent times to enqueue a sample, by the number of launches in the sample."""

        self._clocks_mhz: list[float] = []
        self._host_us: list[float] = []  # the host's times per launch, in the latest samples
        self.overhead_us = 0.0  # time between a sample's two events beyond its launches
        self._host_overhead_us = 0.0  # the host's time to record a sample's two events
        self.void_samples = 0  # number of void samples, which were taken again

    def take_clock_mhz(self) -> float | None:
        """Return the median clock of the multiprocessors during the samples since the last call."""
        clocks, self._clocks_mhz = self._clocks_mhz, []
        return statistics.median(clocks) if clocks else None

    def set_clock_mhz(self, mhz: float | None) -> None:
        """Replace the clocks of earlier samples by a value, which `take_clock_mhz` returns next."""
        self._clocks_mhz = [mhz] if mhz else []
        self._host_us = []

    def take_host_us(self) -> float | None:
        """Return the host's median time to enqueue a launch, over the samples since the last call.

        The time to record a sample's two events is subtracted.
        """
        times_us, self._host_us = self._host_us, []
        return max(0.0, statistics.median(times_us)) if times_us else None

    def add_host_us(self, host_us: float) -> None:
        """Add the host's time of a launch that another timer measures."""
        self._host_us.append(host_us)

    def calibrate(self, launch: Callable[[], None]) -> None:
        """Measure `overhead_us` with an empty kernel.

        A sample of L launches of τ each takes overhead + L·τ. So samples of one launch and of many
        launches give the overhead and τ. Without the correction, a launch that is timed by itself
        would seem 2 µs longer than a launch among many. Raises DeviceUnavailableError if
        `MAX_CALIBRATIONS` results exceed `MAX_OVERHEAD_US`.
        """
        many = CALIBRATION_LAUNCHES
        for _ in range(MAX_CALIBRATIONS):
            self.overhead_us = self._host_overhead_us = 0.0
            (one_us, one_host_us), (many_us, many_host_us) = (
                (
                    statistics.median(self.sample(repeat(launch), launches, CALIBRATION_SAMPLES)),
                    self.take_host_us() or 0.0,
                )
                for launches in (1, many)
            )
            self.overhead_us = max(0.0, (one_us - many_us) * many / (many - 1))
            self._host_overhead_us = max(0.0, (one_host_us - many_host_us) * many / (many - 1))
            if self.overhead_us <= MAX_OVERHEAD_US:
                return
        raise DeviceUnavailableError(
            f"a sample takes {self.overhead_us:.1f} µs longer than its launches; times are "
            f"accurate only up to {MAX_OVERHEAD_US:g} µs of such overhead: is another program "
            "using the GPU?"
        )

    def waits(self, launch: Callable[[], None]) -> bool:
        """Return whether a launch returns only after the device has reached it."""
        for blocked_us in WAITING_US:
            self._stream.block(blocked_us)
            start = self._stream.record_start()
            launch()
            returned_before = not start.done
            self._stream.record_stop()
            self._stream.synchronize()
            if returned_before:
                return False
        return True

    def sample(
        self,
        rotation: Iterator[Callable[[], None]],
        launches: int,
        count: int,
        before: Callable[[], None] | None = None,
    ) -> list[float]:
        """Time `count` samples of `launches` launches each, and return microseconds per launch.

        The launches are taken from `rotation`. `before` is enqueued ahead of each sample and is not
        timed. A sample is void if the blocking kernel ended before all launches were enqueued, or
        if the sample does not exceed the overhead. Raises LaunchError after `MAX_ATTEMPTS` groups
        of void samples in a row.
        """
        times: list[float] = []
        sample_us, failures = 0.0, 0
        while len(times) < count:
            group = self._group_size(launches, sample_us, count - len(times))
            samples = [
                self._enqueue(rotation, launches, before, sample_us * (index > 0), failures)
                for index in range(group)
            ]
            self._stream.synchronize()
            blocked = [sample for sample in samples if sample.valid]
            earlier = len(times)
            for sample in blocked:
                sample_us = self._stream.elapsed_us(sample.start, sample.stop)
                if sample_us <= self.overhead_us:
                    continue
                times.append((sample_us - self.overhead_us) / launches)
                if clock := self._stream.clock_mhz(sample.start, sample.stop):
                    self._clocks_mhz.append(clock)
            taken = len(times) - earlier
            self.void_samples += len(samples) - taken
            failures = 0 if taken else failures + 1
            if failures == MAX_ATTEMPTS:
                raise LaunchError(
                    f"{launches} launches take {sample_us:.2f} µs, no more than the overhead of "
                    f"{self.overhead_us:.2f} µs"
                    if blocked
                    else f"the host is too slow: it did not enqueue {launches} launches while "
                    "a kernel blocked the stream"
                )
        return times

    def _group_size(self, launches: int, sample_us: float, samples: int) -> int:
        """Return the number of samples to enqueue before the host waits for the device.

        The number is 1 until the duration of a sample is known.
        """
        if not sample_us:
            return 1
        return max(1, min(samples, MAX_IN_FLIGHT // launches, int(GROUP_US / sample_us)))

    def _enqueue(
        self,
        rotation: Iterator[Callable[[], None]],
        launches: int,
        before: Callable[[], None] | None,
        pending_us: float,
        failures: int,
    ) -> Sample:
        """Enqueue a sample behind a blocking kernel, or behind `pending_us` of unfinished work.

        The blocking time doubles with each earlier failure.
        """
        recent_us = self._enqueue_us[launches]
        needed_us = MARGIN * statistics.median_low(recent_us) * 2**failures
        if before:
            before()
        if needed_us > pending_us:
            self._stream.block(needed_us)
        enqueue_start_ns = self._host_clock_ns()
        start = self._stream.record_start()
        for launch in islice(rotation, launches):
            launch()
        stop = self._stream.record_stop()
        valid = not start.done
        host_us = (self._host_clock_ns() - enqueue_start_ns) / 1e3
        recent_us.append(host_us)
        self._host_us.append((host_us - self._host_overhead_us) / launches)
        return Sample(start, stop, valid)
