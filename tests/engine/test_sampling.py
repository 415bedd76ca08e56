"""The end of sampling, and the statistics of samples."""

import itertools
import math
import random
from collections.abc import Iterable, Iterator
from dataclasses import replace
from types import SimpleNamespace

import pytest
from fakes import measurement
from hypothesis import given
from hypothesis import strategies as st

from gpubench.engine.measure.sampling import _why_stop, best_threads, collect
from gpubench.errors import LaunchError
from gpubench.model import Series, Timing
from gpubench.results.rows import _times
from gpubench.stats.intervals import median_interval

ONE_ROUND = Timing(rounds=1)


def summarize(times_us: Iterable[float], launches: int = 1, reason: str = "") -> SimpleNamespace:
    """Return the time columns of one series."""
    series = Series(times_us=tuple(times_us), launches_per_sample=launches, stop_reason=reason)
    return SimpleNamespace(**_times([replace(measurement(), series=series)]))


class Script:
    """Scripted times per launch, one for each sample. Each sample advances the clock."""

    def __init__(self, times_us: float | Iterable[float], *, waiting_s: float = 0.0) -> None:
        self._times: Iterator[float] = (
            itertools.repeat(times_us) if isinstance(times_us, float) else iter(times_us)
        )
        self._waiting_s = waiting_s
        self.now_s = 0.0
        self.asked: list[tuple[int, int]] = []

    def sample(self, launches: int, count: int) -> list[float]:
        self.asked.append((launches, count))
        times = list(itertools.islice(self._times, count))
        self.now_s += sum(times) * launches / 1e6 + self._waiting_s * count
        return times

    def collect(self, timing: Timing = ONE_ROUND, max_launches: int = 256) -> Series:
        return collect(self.sample, timing, max_launches, math.inf, clock=lambda: self.now_s)


def test_the_interval_of_the_median_covers_at_least_95_percent() -> None:
    for count in range(6, 501):
        low, _, high = median_interval([float(rank) for rank in range(count)])
        assert low + high == count - 1
        # The interval misses the true median if at most `low` samples lie on one side of it.
        missing = 2 * sum(math.comb(count, below) for below in range(int(low) + 1))
        assert missing * 20 <= 2**count
        # The interval is at most one rank wider than that requires.
        narrower = missing + 2 * sum(math.comb(count, int(low) + more) for more in (1, 2))
        assert narrower * 20 > 2**count


@pytest.mark.parametrize("count", range(1, 6))
def test_under_six_samples_the_interval_is_their_range(count: int) -> None:
    times = [float(rank) for rank in range(count)]
    assert median_interval(times) == (0.0, (count - 1) / 2, count - 1)


def test_a_fast_kernel_is_batched_until_a_sample_lasts_long_enough() -> None:
    script = Script(10.0)
    assert script.collect().launches_per_sample == 10
    assert all(launches in {1, 10} for launches, _ in script.asked)
    assert Script(0.1).collect(max_launches=7).launches_per_sample == 7
    assert Script(101.0).collect().launches_per_sample == 1
    in_graph = Script(10.0)  # a graph with 20 sets of operands
    series = collect(in_graph.sample, ONE_ROUND, 256, clock=lambda: in_graph.now_s, min_launches=20)
    assert series.launches_per_sample == 20


def test_a_time_is_precise_if_half_of_its_interval_is_within_the_precision() -> None:
    times = [float(time_us) for time_us in range(50, 151)]
    assert median_interval(times) == (90, 100, 110)
    for precision, reason in ((0.11, "precise"), (0.09, None)):
        assert _why_stop(times, 1.0, [], 0.0, replace(ONE_ROUND, precision=precision)) == reason


@pytest.mark.parametrize(
    ("first_us", "then_us", "expected_us", "warm_up_us"),
    [
        ((5_000.0, 900.0, 800.0), 10.0, 10.0, 6_700.0),
        ((5_000.0,), 4_000.0, 4_500.0, 5_000.0),
        ((30_000.0,), 25_000.0, 15_000.0, 30_000.0),
        ((30_000.0,), 25_000.0, 25_000.0, 0.0),  # as long as expected, so it counts
    ],
)
def test_launches_that_warm_up_are_not_counted_and_a_long_one_is_made_once(
    first_us: tuple[float, ...], then_us: float, expected_us: float, warm_up_us: float
) -> None:
    script = Script(itertools.chain(first_us, itertools.repeat(then_us)))
    series = collect(script.sample, ONE_ROUND, 256, expected_us, clock=lambda: script.now_s)
    assert max(series.times_us) == (then_us if warm_up_us else first_us[0])
    assert script.now_s - series.device_s >= warm_up_us / 1e6 - 1e-9
    if len(first_us) == 1:
        assert script.now_s - series.device_s == pytest.approx(warm_up_us / 1e6)


@pytest.mark.parametrize("launch_us", [0.3, 10.0, 1_000.0, 30_000.0])
def test_a_steady_kernel_is_precise_after_the_least_samples_and_time(launch_us: float) -> None:
    series = Script(launch_us).collect()
    assert series.stop_reason == "precise"
    assert len(series.times_us) >= 10
    assert series.device_s >= 0.0499
    assert series.device_s <= max(0.12, 10.1 * launch_us / 1e6)


def test_a_launch_slower_than_expected_time_and_again_is_slow() -> None:
    script = Script(250_000.0)
    series = collect(script.sample, ONE_ROUND, 256, 10.0, clock=lambda: script.now_s)
    assert (series.launches_per_sample, len(series.times_us)) == (1, 3)
    assert series.stop_reason == "time limit"


def test_slow_launches_are_sampled_for_the_wall_time_of_others_and_at_least_three_times() -> None:
    for launch_s, rounds, samples in [
        (0.17, 3, 9),
        (0.17, 5, 10),  # as a product at 16384 in float32 on an H200
        (0.25, 1, 6),
        (0.4, 3, 6),
        (0.4, 5, 5),
        (2.0, 1, 3),
        (2.0, 3, 3),
        (2.0, 5, 5),
    ]:
        scripts = [Script(1e6 * launch_s) for _ in range(rounds)]
        series = [script.collect(Timing(rounds=rounds)) for script in scripts]
        assert sum(len(each.times_us) for each in series) == samples
        assert {each.stop_reason for each in series} == {"time limit"}
        asked = [launches * count for script in scripts for launches, count in script.asked]
        assert sum(asked) == samples


def test_noise_is_sampled_until_the_interval_is_narrow() -> None:
    noise = random.Random(1)  # noqa: S311 # a script, not a secret
    series = Script(iter(lambda: noise.gauss(10.0, 0.3), None)).collect(
        Timing(rounds=1, max_wall_s=60.0)
    )
    assert series.stop_reason == "precise"
    assert len(series.times_us) > 100
    low, _, high = median_interval(series.times_us)
    assert (high - low) / 2 / series.median_us <= 0.005
    assert series.median_us == pytest.approx(10.0, rel=0.01)


def two_modes() -> Iterator[float]:
    noise = random.Random(1)  # noqa: S311 # a script, not a secret
    while True:
        yield noise.choice([10.0, 11.0])


def drifting() -> Iterator[float]:
    for step in itertools.count():
        yield 10.0 + 0.01 * step


def slower_from_the_middle() -> Iterator[float]:
    yield from itertools.repeat(10.0, 60)
    yield from itertools.repeat(12.5)


@pytest.mark.parametrize("times", [two_modes, drifting, slower_from_the_middle])
@pytest.mark.parametrize("waiting_s", [0.0, 0.005])
def test_a_kernel_that_never_converges_stops(times: type, waiting_s: float) -> None:
    script = Script(times(), waiting_s=waiting_s)
    series = script.collect(Timing(rounds=1, max_wall_s=1.0))
    assert series.stop_reason in {"interval stopped shrinking", "time limit", "precise"}
    # The limit is checked between batches, so the last batch may exceed it.
    assert script.now_s < 3.0


@pytest.mark.parametrize("wrong_us", [0.0, -4.76, math.inf, math.nan])
def test_a_time_that_no_launch_can_take_is_an_error(wrong_us: float) -> None:
    script = Script(itertools.chain([50.0] * 8, itertools.repeat(wrong_us)))
    with pytest.raises(LaunchError, match=f"timed at {wrong_us:g} µs a launch: the clock is wrong"):
        script.collect()


def test_without_any_time_the_fewest_samples_are_taken() -> None:
    assert Script(10.0).collect(Timing(rounds=1, max_wall_s=0.0)).times_us.__len__() == 10
    assert Script(10.0).collect(Timing(rounds=3, max_wall_s=0.0)).times_us.__len__() == 4
    assert Script(200_000.0).collect(Timing(rounds=3, max_wall_s=0.0)).times_us.__len__() == 1


times_us = st.lists(st.floats(1e-3, 1e9), min_size=1, max_size=60)


@given(times_us)
def test_statistics_are_in_order_and_no_sample_is_dropped(times: list[float]) -> None:
    series = summarize(times, 3, "precise")
    assert (series.samples, series.min_us) == (len(times), min(times))
    assert series.min_us <= series.median_us <= max(times)


def test_batches_fit_into_the_wall_time_though_the_pauses_between_samples_are_long() -> None:
    script = Script(100.0, waiting_s=0.07)  # a flush of a cache of hundreds of megabytes
    series = script.collect()
    assert series.stop_reason == "time limit"
    assert script.now_s < ONE_ROUND.max_wall_s + 0.1
    assert 15 <= len(series.times_us) <= ONE_ROUND.max_wall_s / 0.07


class Machine:
    """A machine with a table of launch times in µs by the number of threads."""

    def __init__(self, times_us: dict[int, float]) -> None:
        self.times_us = times_us
        self.launched: list[int] = []

    def __call__(self, count: int) -> float:
        self.launched.append(count)
        return self.times_us[count]


@pytest.mark.parametrize(
    ("times_us", "best"),
    [
        ({16: 10.0, 8: 19.0, 4: 27.0, 2: 54.0, 1: 104.0}, 16),
        ({16: 90.0, 8: 60.0, 4: 40.0, 2: 25.0, 1: 20.0}, 1),
        ({16: 60.0, 8: 40.0, 4: 30.0, 2: 60.0, 1: 10.0}, 4),  # 2 are too slow to try 1
        ({2: 10.2, 1: 10.0}, 2),
    ],
)
def test_of_equally_fast_threads_the_most_are_taken(times_us: dict[int, float], best: int) -> None:
    assert best_threads(Machine(times_us), tuple(times_us)) == best


def test_slow_launches_are_made_once_for_each_number_of_threads() -> None:
    machine = Machine({16: 3e5, 8: 2e5, 4: 4e5, 2: 8e5})
    assert best_threads(machine, (16, 8, 4, 2), slow_us=1e5) == 8
    assert machine.launched == [16, 8, 4]


def test_a_disturbance_during_one_number_of_threads_does_not_decide() -> None:
    times_us = {4: 10.0, 2: 14.0, 1: 30.0}
    disturbed = iter((99.0, 99.0, 10.0, 99.0))  # the first launches with four threads

    def time_us(count: int) -> float:
        return next(disturbed, 10.0) if count == 4 else times_us[count]

    assert best_threads(time_us, (4, 2, 1)) == 4
