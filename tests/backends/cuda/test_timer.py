"""The gated batch, on a stream whose host and device clocks are scripted to the microsecond."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubench.backends.cuda import timer as module
from gpubench.backends.cuda.timer import MAX_ATTEMPTS, MAX_IN_FLIGHT, BlockedBatchTimer
from gpubench.errors import LaunchError


@dataclass
class Mark:
    stream: FakeStream
    at_us: float

    @property
    def done(self) -> bool:
        return self.at_us <= self.stream.host_us


class FakeStream:
    """Enqueuing takes the host's time; what is enqueued takes the device's, one after another."""

    def __init__(self, *, launch_us: float = 10.0, enqueue_us: Any = 2.0) -> None:
        self.host_us = 0.0
        self.device_us = 0.0
        self.launch_us = launch_us
        self.gates_us: list[float] = []
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

    def gate(self, microseconds: float) -> None:
        self.gates_us.append(microseconds)
        self._enqueue(microseconds)

    def begin(self) -> Mark:
        self._enqueue(0.0)
        return Mark(self, self.device_us)

    end = begin

    def launch(self, on: object = None) -> None:
        self.launched.append(on)
        self.in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self.in_flight)
        self._enqueue(self.launch_us)

    def synchronize(self) -> None:
        self.host_us = max(self.host_us, self.device_us)
        self.in_flight = 0
        self.synchronized += 1

    def elapsed_us(self, start: Mark, stop: Mark) -> float:
        return stop.at_us - start.at_us

    def clock_mhz(self, _start: Mark, _stop: Mark) -> float | None:
        return 1980.0


class HostClock:
    """`time` as the timer sees it: the fake stream's host clock."""

    def __init__(self, stream: FakeStream) -> None:
        self._stream = stream

    def perf_counter_ns(self) -> int:
        return round(self._stream.host_us * 1000)


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> Callable[[FakeStream], BlockedBatchTimer]:
    def make(stream: FakeStream) -> BlockedBatchTimer:
        monkeypatch.setattr(module, "time", HostClock(stream))
        return BlockedBatchTimer(stream)

    return make


Timer = Callable[[FakeStream], BlockedBatchTimer]


def endless(stream: FakeStream) -> Iterator[Callable[[], None]]:
    return itertools.repeat(stream.launch)


def test_a_sample_is_the_devices_time_and_not_the_hosts(on: Timer) -> None:
    # Enqueuing takes five times as long as running: without a gate this would read 50 µs.
    stream = FakeStream(launch_us=10.0, enqueue_us=50.0)
    assert on(stream).sample(endless(stream), 4, 3) == [10.0] * 3


@pytest.mark.parametrize("launches", [1, 2, 50, 256])
def test_a_sample_has_exactly_its_launches(on: Timer, launches: int) -> None:
    stream = FakeStream(launch_us=3.0, enqueue_us=1.0)
    timer = on(stream)
    assert len(timer.sample(endless(stream), launches, 7)) == 7
    assert timer.void_samples == 0 or launches > 50
    assert len(stream.launched) == launches * (7 + timer.void_samples)


def test_a_gate_that_is_too_short_voids_the_sample_and_the_next_one_is_longer(on: Timer) -> None:
    # 3 enqueues of 500 µs each: the first gate, sized for nothing seen, cannot outlast them.
    stream = FakeStream(launch_us=10.0, enqueue_us=500.0)
    timer = on(stream)
    assert timer.sample(endless(stream), 1, 1) == [10.0]
    assert timer.void_samples >= 1
    assert stream.gates_us == sorted(stream.gates_us)
    assert stream.gates_us[0] < 1000 < stream.gates_us[-1]
    assert len(stream.launched) == 1 + timer.void_samples


def test_the_next_sample_knows_how_long_the_gate_must_be(on: Timer) -> None:
    stream = FakeStream(launch_us=10.0, enqueue_us=500.0)
    timer = on(stream)
    timer.sample(endless(stream), 1, 1)
    void = timer.void_samples
    timer.sample(endless(stream), 1, 20)
    assert timer.void_samples == void


def test_a_first_launch_that_loads_its_kernel_does_not_make_later_gates_long(on: Timer) -> None:
    stream = FakeStream(launch_us=10.0, enqueue_us=[1.0, 1.0, 20_000.0])
    timer = on(stream)
    for _ in range(20):
        timer.sample(endless(stream), 1, 6)
    assert timer.void_samples == 1
    assert max(stream.gates_us) <= 2 * module.MARGIN * module.FIRST_ENQUEUE_US
    assert stream.gates_us[-1] < 10.0


def test_a_hiccup_of_the_host_voids_one_sample(on: Timer) -> None:
    calm, hiccup = [1.0] * 40, [10_000.0]
    stream = FakeStream(launch_us=10.0, enqueue_us=[*calm, *hiccup])
    timer = on(stream)
    assert timer.sample(endless(stream), 4, 20) == [10.0] * 20
    assert timer.void_samples >= 1


def test_a_gate_that_never_holds_is_a_launch_error(on: Timer) -> None:
    stream = FakeStream()
    stream.gate = stream.gates_us.append  # it opens at once
    with pytest.raises(LaunchError, match="no gate held while 4 launches"):
        on(stream).sample(endless(stream), 4, 3)
    assert len(stream.gates_us) == MAX_ATTEMPTS
    assert all(2 * a <= b for a, b in itertools.pairwise(stream.gates_us[1:]))


def test_sets_take_turns_from_sample_to_sample(on: Timer) -> None:
    stream = FakeStream()
    turns = itertools.cycle([lambda number=number: stream.launch(number) for number in range(3)])
    timer = on(stream)
    timer.sample(turns, 2, 2)
    timer.sample(turns, 4, 1)
    assert stream.launched == [number % 3 for number in range(len(stream.launched))]
    assert len(stream.launched) >= 8


def test_what_comes_before_a_sample_is_outside_its_time(on: Timer) -> None:
    stream = FakeStream(launch_us=10.0)
    flushes: list[int] = []

    def flush() -> None:
        flushes.append(len(stream.launched))
        stream._enqueue(300.0)

    timer = on(stream)
    assert timer.sample(endless(stream), 4, 5, flush) == [10.0] * 5
    assert flushes == [4 * number for number in range(5 + timer.void_samples)]


def test_the_drivers_queue_is_never_overfilled(on: Timer) -> None:
    stream = FakeStream(launch_us=2.0, enqueue_us=1.0)
    on(stream).sample(endless(stream), 100, 50)
    assert stream.max_in_flight <= MAX_IN_FLIGHT


def test_long_samples_are_waited_for_one_by_one(on: Timer) -> None:
    # Ctrl-C must come through.
    stream = FakeStream(launch_us=80_000.0)
    on(stream).sample(endless(stream), 1, 5)
    assert stream.synchronized == 5


def test_the_time_beyond_the_launches_is_calibrated_and_subtracted(on: Timer) -> None:
    class Costly(FakeStream):
        def elapsed_us(self, start: Mark, stop: Mark) -> float:
            return super().elapsed_us(start, stop) + 1.5

    stream = Costly(launch_us=0.75)
    timer = on(stream)
    assert timer.sample(endless(stream), 1, 1) == [2.25]
    timer.calibrate(stream.launch)
    assert timer.overhead_us == pytest.approx(1.5)
    stream.launch_us = 10.0
    assert timer.sample(endless(stream), 1, 3) == pytest.approx([10.0] * 3)
    assert timer.sample(endless(stream), 64, 3) == pytest.approx([10.0] * 3)


def test_calibrating_again_does_not_subtract_twice(on: Timer) -> None:
    stream = FakeStream(launch_us=0.75)
    timer = on(stream)
    timer.overhead_us = 99.0
    timer.calibrate(stream.launch)
    assert timer.overhead_us == pytest.approx(0.0, abs=1e-6)


def test_the_clock_of_the_samples_is_their_median_and_forgotten_when_taken(on: Timer) -> None:
    stream = FakeStream()
    clocks = iter([1000.0, None, 1980.0, 1990.0])
    stream.clock_mhz = lambda _start, _stop: next(clocks)
    timer = on(stream)
    assert timer.take_clock_mhz() is None
    timer.sample(endless(stream), 1, 4)
    assert timer.take_clock_mhz() == 1980.0
    assert timer.take_clock_mhz() is None


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
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "time", HostClock(stream))
        before = (lambda: stream._enqueue(50.0)) if flush else None
        times = BlockedBatchTimer(stream).sample(endless(stream), launches, count, before)
    assert times == pytest.approx([launch_us] * count, rel=1e-6)
