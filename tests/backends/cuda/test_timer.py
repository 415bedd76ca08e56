"""The timer of launches behind a blocking kernel, on a stream with scripted clocks."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubench.backends.cuda.empty_launch import empty_launch_us
from gpubench.backends.cuda.timer import (
    CALIBRATION_SAMPLES,
    FIRST_ENQUEUE_US,
    MARGIN,
    MAX_ATTEMPTS,
    MAX_CALIBRATIONS,
    MAX_IN_FLIGHT,
    MAX_OVERHEAD_US,
    BlockedBatchTimer,
)
from gpubench.errors import DeviceUnavailableError, LaunchError


@dataclass
class Timestamp:
    stream: FakeStream
    at_us: float

    @property
    def done(self) -> bool:
        return self.at_us <= self.stream.host_us


class FakeStream:
    """A stream in which enqueuing takes time on the host, and launches take time on the device."""

    def __init__(self, *, launch_us: float = 10.0, enqueue_us: Any = 2.0) -> None:
        self.host_us = 0.0
        self.device_us = 0.0
        self.launch_us = launch_us
        self.blocks_us: list[float] = []
        self.launched: list[object] = []
        self.in_flight = 0
        self.max_in_flight = 0
        self.synchronized = 0
        self._enqueue_us: Iterator[float] = (
            itertools.repeat(enqueue_us)
            if isinstance(enqueue_us, int | float)
            else itertools.chain(enqueue_us, itertools.repeat(1.0))
        )

    def _enqueue(self, device_us: float) -> None:
        self.host_us += next(self._enqueue_us)
        self.device_us = max(self.device_us, self.host_us) + device_us

    def block(self, microseconds: float) -> None:
        self.blocks_us.append(microseconds)
        self._enqueue(microseconds)

    def record_start(self) -> Timestamp:
        self._enqueue(0.0)
        return Timestamp(self, self.device_us)

    record_stop = record_start

    def launch(self, on: object = None) -> None:
        self.launched.append(on)
        self.in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self.in_flight)
        self._enqueue(self.launch_us)

    def synchronize(self) -> None:
        self.host_us = max(self.host_us, self.device_us)
        self.in_flight = 0
        self.synchronized += 1

    def elapsed_us(self, start: Timestamp, stop: Timestamp) -> float:
        return stop.at_us - start.at_us

    def clock_mhz(self, _start: Timestamp, _stop: Timestamp) -> float | None:
        return 1980.0


def timer_on(stream: FakeStream) -> BlockedBatchTimer:
    return BlockedBatchTimer(stream, lambda: round(stream.host_us * 1000))


def endless(stream: FakeStream) -> Iterator[Callable[[], None]]:
    return itertools.repeat(stream.launch)


def test_a_sample_has_exactly_its_launches_and_never_overfills_the_drivers_queue() -> None:
    for launches in (1, 2, 50, 100, 256):
        stream = FakeStream(launch_us=3.0, enqueue_us=1.0)
        timer = timer_on(stream)
        assert len(timer.sample(endless(stream), launches, 50)) == 50
        assert timer.void_samples == 0 or launches > 50
        assert len(stream.launched) == launches * (50 + timer.void_samples)
        assert stream.max_in_flight <= MAX_IN_FLIGHT


def test_too_short_a_block_voids_the_sample_and_the_next_one_is_longer() -> None:
    # Three calls take 500 µs each. The first block, of an assumed length, ends before them.
    stream = FakeStream(launch_us=10.0, enqueue_us=500.0)
    timer = timer_on(stream)
    assert timer.sample(endless(stream), 1, 1) == [10.0]
    assert timer.void_samples >= 1
    assert stream.blocks_us == sorted(stream.blocks_us)
    assert stream.blocks_us[0] < 1000 < stream.blocks_us[-1]
    assert len(stream.launched) == 1 + timer.void_samples


def test_a_first_launch_that_loads_its_kernel_does_not_make_later_blocks_long() -> None:
    stream = FakeStream(launch_us=10.0, enqueue_us=[1.0, 1.0, 20_000.0])
    timer = timer_on(stream)
    for _ in range(20):
        timer.sample(endless(stream), 1, 6)
    assert timer.void_samples == 1
    assert max(stream.blocks_us) <= 2 * MARGIN * FIRST_ENQUEUE_US
    assert stream.blocks_us[-1] < 10.0


def test_blocking_that_never_lasts_long_enough_is_a_launch_error() -> None:
    stream = FakeStream()
    stream.block = stream.blocks_us.append  # the block ends at once
    with pytest.raises(LaunchError, match="it did not enqueue 4 launches while a kernel blocked"):
        timer_on(stream).sample(endless(stream), 4, 3)
    assert len(stream.blocks_us) == MAX_ATTEMPTS
    assert all(2 * a <= b for a, b in itertools.pairwise(stream.blocks_us[1:]))


def test_the_rotation_goes_on_from_sample_to_sample() -> None:
    stream = FakeStream()
    rotation = itertools.cycle([lambda index=index: stream.launch(index) for index in range(3)])
    timer = timer_on(stream)
    timer.sample(rotation, 2, 2)
    timer.sample(rotation, 4, 1)
    assert stream.launched == [index % 3 for index in range(len(stream.launched))]
    assert len(stream.launched) >= 8


def test_long_samples_are_waited_for_one_by_one() -> None:
    # Otherwise Ctrl-C would have to wait for all samples.
    stream = FakeStream(launch_us=80_000.0)
    timer_on(stream).sample(endless(stream), 1, 5)
    assert stream.synchronized == 5


class Overheads(FakeStream):
    """A stream that adds these overheads to samples, one after another; the last one stays."""

    def __init__(self, *overheads_us: float) -> None:
        super().__init__(launch_us=0.75)
        self.overheads_us = list(overheads_us)
        self.read = 0

    def elapsed_us(self, start: Timestamp, stop: Timestamp) -> float:
        at = min(self.read // (2 * CALIBRATION_SAMPLES), len(self.overheads_us) - 1)
        self.read += 1
        return super().elapsed_us(start, stop) + self.overheads_us[at]


def test_the_time_beyond_the_launches_is_calibrated_and_subtracted_once() -> None:
    stream = Overheads(1.5)
    timer = timer_on(stream)
    assert timer.sample(endless(stream), 1, 1) == [2.25]
    timer.overhead_us = 99.0  # as an earlier calibration left it
    timer.calibrate(stream.launch)
    assert timer.overhead_us == pytest.approx(1.5)
    stream.launch_us = 10.0
    for launches in (1, 64):
        assert timer.sample(endless(stream), launches, 3) == pytest.approx([10.0] * 3)


def test_an_implausible_overhead_is_measured_again_and_ends_the_sweep_if_it_stays() -> None:
    stream = Overheads(40.0, 2.2)
    timer = timer_on(stream)
    timer.calibrate(stream.launch)
    assert timer.overhead_us == pytest.approx(2.2)
    stream = Overheads(MAX_OVERHEAD_US + 0.1)
    with pytest.raises(DeviceUnavailableError, match=r"10\.1 µs longer than its.*up to 10 µs"):
        timer_on(stream).calibrate(stream.launch)
    assert stream.read == MAX_CALIBRATIONS * 2 * CALIBRATION_SAMPLES


def test_a_sample_no_longer_than_the_overhead_is_void_and_an_error_if_all_are() -> None:
    times = iter([2.2, 2.0, 12.2, 0.0, 12.2])
    stream = FakeStream()
    stream.elapsed_us = lambda _start, _stop: next(times, 2.0)
    timer = timer_on(stream)
    timer.overhead_us = 2.2
    assert timer.sample(endless(stream), 1, 2) == pytest.approx([10.0, 10.0])
    assert timer.void_samples == 3
    with pytest.raises(
        LaunchError, match=r"1 launches take 2\.00 µs, no more than the overhead of 2\.20 µs"
    ):
        timer.sample(endless(stream), 1, 3)


def test_the_clock_of_the_samples_is_their_median_and_forgotten_when_taken() -> None:
    stream = FakeStream()
    clocks = iter([1000.0, None, 1980.0, 1990.0])
    stream.clock_mhz = lambda _start, _stop: next(clocks)
    timer = timer_on(stream)
    assert timer.take_clock_mhz() is None
    timer.sample(endless(stream), 1, 4)
    assert timer.take_clock_mhz() == 1980.0
    assert timer.take_clock_mhz() is None


@pytest.mark.parametrize("launches", [1, 4])
def test_the_hosts_time_of_a_launch_has_no_part_of_the_two_events(launches: int) -> None:
    stream = FakeStream(enqueue_us=3.0)
    timer = timer_on(stream)
    assert timer.take_host_us() is None
    timer.calibrate(stream.launch)
    assert timer.take_host_us() is None
    timer.sample(endless(stream), launches, 4)
    assert timer.take_host_us() == pytest.approx(3.0)
    timer.sample(endless(stream), launches, 4)
    timer.set_clock_mhz(1980.0)  # another timer enqueued the launches
    assert timer.take_host_us() is None


def test_a_launch_that_waits_for_the_device_is_told_from_one_that_is_slow_to_enqueue() -> None:
    for enqueue_us, waits in ((2.0, False), (20_000.0, False), (2.0, True)):
        stream = FakeStream()

        def launch(on: FakeStream = stream, us: float = enqueue_us, waits: bool = waits) -> None:
            on.launch()
            on.host_us += us
            if waits:
                on.synchronize()

        assert timer_on(stream).waits(launch) == waits


@given(
    st.lists(st.floats(0.1, 5_000.0), max_size=300),
    st.floats(0.5, 20_000.0),
    st.integers(1, 64),
    st.integers(1, 30),
    st.booleans(),
)
def test_whatever_the_host_does_every_sample_is_the_devices_time(
    enqueue_us: list[float], launch_us: float, launches: int, count: int, flush: bool
) -> None:
    stream = FakeStream(launch_us=launch_us, enqueue_us=enqueue_us)
    before = (lambda: stream._enqueue(50.0)) if flush else None
    times = timer_on(stream).sample(endless(stream), launches, count, before)
    assert times == pytest.approx([launch_us] * count, rel=1e-6)


class EmptyChain(FakeStream):
    """A stream whose two clocks differ by some microseconds per launch."""

    def __init__(self, apart_us: float = 0.0, **options: Any) -> None:
        super().__init__(launch_us=1.5, **options)
        self.apart_us = apart_us

    launch_empty = FakeStream.launch

    def between_us(self, start: Timestamp, stop: Timestamp) -> float:
        return stop.at_us - start.at_us + 2.0  # a timestamp itself takes time

    def elapsed_us(self, start: Timestamp, stop: Timestamp) -> float:
        return (stop.at_us - start.at_us) * (1 + self.apart_us / self.launch_us)


class FakeCupti:
    def sample(self, _rotation: object, _launches: int, count: int) -> list[float]:
        return [0.9] * count


@pytest.mark.parametrize("apart_us", [0.0, -1.0, 2.8])
def test_an_empty_launch_is_timed_by_the_device_without_events(apart_us: float) -> None:
    stream = EmptyChain(apart_us)
    times_us = empty_launch_us(stream, timer_on(stream), FakeCupti())
    assert times_us == pytest.approx({"device": 1.5, "events": 1.5 + apart_us, "cupti": 0.9})


def test_a_host_that_is_slow_blocks_the_device_for_longer_or_is_named() -> None:
    slow = EmptyChain(enqueue_us=40.0)
    assert empty_launch_us(slow, timer_on(slow), FakeCupti())["device"] == pytest.approx(1.5)
    stuck = EmptyChain(enqueue_us=2000.0)
    with pytest.raises(LaunchError, match=r"host is too slow: it needs over .* to enqueue 257"):
        empty_launch_us(stuck, timer_on(stuck), FakeCupti())
