"""Sustained launches (without a pause), on the scripted stream of test_timer.py."""

import itertools
import time
from contextlib import nullcontext
from itertools import pairwise
from threading import Event, active_count

import pytest
from test_timer import FakeStream, Timestamp

from gpubench.backends.cuda.sustained import (
    AHEAD_US,
    MAX_LAUNCHES,
    MAX_SAMPLES,
    READ_EVERY_S,
    SAMPLE_US,
    mean_power_w,
    metered,
    sustain,
)
from gpubench.backends.cuda.timer import MAX_IN_FLIGHT
from gpubench.errors import DoesNotFitError
from gpubench.model import Series


class Stream(FakeStream):
    """A stream in which the host can wait for a mark, until all earlier launches have ended.

    A launch runs `latency_us` after it was enqueued at the earliest.
    """

    latency_us = 0.0

    def _enqueue(self, device_us: float) -> None:
        self.device_us = max(self.device_us, self.host_us + self.latency_us)
        super()._enqueue(device_us)

    def wait(self, mark: Timestamp) -> None:
        self.host_us = max(self.host_us, mark.at_us)
        self.in_flight = round((self.device_us - self.host_us) / self.launch_us)


def sustained(stream: Stream, power_w: float | None = 700.0) -> tuple[Series, float | None]:
    seconds = [at / 100 for at in range(200)] if power_w else []
    return sustain(
        stream,
        itertools.repeat(stream.launch),
        stream.launch_us,
        heat_s=1.0,
        timed_s=0.5,
        energy_j=lambda: None,
        clock=lambda: stream.host_us / 1e6,
        meter=lambda *_: nullcontext([(at, at * (power_w or 0.0)) for at in seconds]),
    )


def test_samples_follow_the_heating_and_fill_their_time() -> None:
    stream = Stream(launch_us=100.0)
    series, clock_mhz = sustained(stream)
    assert set(series.times_us) == {100.0}
    assert series.launches_per_sample * 100.0 == SAMPLE_US
    assert series.device_s == pytest.approx(0.5, rel=0.05)
    # The total includes the heating, and the launches in the queue when the time was up.
    assert stream.device_us == pytest.approx(1.5e6 + AHEAD_US, rel=0.001)
    assert clock_mhz == 1980.0


def test_nothing_blocks_the_stream_and_its_queue_never_overflows() -> None:
    for launch_us in (20.0, 100.0, 30_000.0):
        stream = Stream(launch_us=launch_us)
        series, _ = sustained(stream)
        assert stream.blocks_us == []
        assert stream.synchronized == 1
        assert stream.max_in_flight <= MAX_IN_FLIGHT + MAX_LAUNCHES
        assert 1 <= series.launches_per_sample <= MAX_LAUNCHES


def test_the_stream_keeps_the_timestamps_of_all_samples_of_short_launches() -> None:
    series, _ = sustained(Stream(launch_us=0.9, enqueue_us=0.5))
    assert len(series.times_us) <= MAX_SAMPLES


def test_samples_in_which_the_device_waited_for_the_host_are_dropped() -> None:
    hiccups = (20_000.0 if number % 1000 == 999 else 2.0 for number in itertools.count())
    stream = Stream(launch_us=100.0, enqueue_us=hiccups)
    series, _ = sustained(stream)
    # The sample that waited is dropped. The next sample was late by less than a fifth.
    assert max(series.times_us) < 5 * 100.0
    assert sorted(series.times_us)[len(series.times_us) // 2] == 100.0


def test_a_host_that_is_late_by_less_than_the_enqueued_launches_take_loses_no_sample() -> None:
    late_us = 0.75 * AHEAD_US
    hiccups = (late_us if number % 1000 == 999 else 2.0 for number in itertools.count())
    series, _ = sustained(Stream(launch_us=200.0, enqueue_us=hiccups))
    assert set(series.times_us) == {200.0}
    assert series.device_s == pytest.approx(0.5, rel=0.1)


@pytest.mark.parametrize("latency_us", [0.0, 20.0])
def test_launches_shorter_than_their_enqueuing_are_refused(latency_us: float) -> None:
    # With a latency, the last launch is always pending, so a busy GPU proves nothing.
    stream = Stream(launch_us=7.3, enqueue_us=10.6)
    stream.latency_us = latency_us
    with pytest.raises(DoesNotFitError, match="too short for --state sustained"):
        sustained(stream)


def test_energy_is_power_times_the_time_of_a_launch() -> None:
    series, _ = sustained(Stream(launch_us=100.0))
    assert series.joules == pytest.approx(700 * 100e-6, rel=1e-3)
    assert sustained(Stream(launch_us=100.0), power_w=None)[0].joules is None


def test_power_is_taken_between_changes_of_a_counter_that_counts_in_steps() -> None:
    # 500 W, counted every 100 ms and read every 10 ms.
    readings = [(at / 100, 500.0 * (at // 10 / 10)) for at in range(3, 58)]
    assert mean_power_w(readings) == pytest.approx(500.0)
    assert mean_power_w(readings[:10]) is None


def test_the_counter_is_read_beside_the_launches_until_they_end() -> None:
    may_end = Event()

    def slow_read() -> float:
        may_end.wait()
        return 1.0

    threads = active_count()
    with metered(slow_read, time.perf_counter) as readings:
        assert readings == []  # launches go on while a read has not ended
        may_end.set()
        while len(readings) < 3:
            time.sleep(0.001)
    times = [at for at, _ in readings]
    assert min(later - earlier for earlier, later in pairwise(times)) > 0.9 * READ_EVERY_S
    assert active_count() == threads
    with metered(lambda: None, time.perf_counter) as readings:
        pass
    assert readings == []
