"""The forecast of the remaining time, and the share of a budget that a visit may use."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from fakes import CPU, measurement, point

from gpubench.backends import backends
from gpubench.hardware.architectures import example
from gpubench.model import Measurement, Point, Series, State, Timing
from gpubench.plan.schedule import VISIT_S, Forecast, InRounds, Rounds, estimate, sampling_s


def alike(items: Iterable[Any]) -> dict[Any, str]:
    """Put all items into one group."""
    return dict.fromkeys(items, "")


def test_the_expected_cost_of_a_group_is_that_of_its_own_points() -> None:
    forecast = Forecast({"a1": "a", "a2": "a", "b1": "b", "b2": "b", "c": "c"}, rounds=1)
    forecast.visited("a1", 1.0, again=True)
    forecast.visited("b1", 9.0, again=True)
    assert forecast.left_s == pytest.approx(1.0 + 9.0 + 5.0)
    assert forecast.visits_left == 3


def test_visits_of_an_earlier_run_are_done_and_do_not_predict_costs() -> None:
    forecast = Forecast(alike("ab"), rounds=2)
    forecast.visited("a", None, again=True)
    assert forecast.left_s == 0
    assert forecast.visits_left == 3
    forecast.visited("b", 2.0, again=True)
    assert forecast.left_s == pytest.approx(2.0 + 2.0)
    forecast.visited("a", 4.0, again=True)
    assert forecast.left_s == pytest.approx(3.0)
    assert forecast.visits_left == 1


def test_a_point_that_failed_costs_nothing_more() -> None:
    forecast = Forecast(alike("ab"), rounds=3)
    forecast.visited("a", 5.0, again=False)
    forecast.visited("b", 1.0, again=True)
    assert forecast.left_s == pytest.approx(2 * 3.0)


def shares(budget_s: float, clock: list[float]) -> list[float | None]:
    """Return the time limit of each visit to two points.

    `clock` has the times that are read: one at the start, and two in each visit.
    """
    points = [point(size=(n, n, n)) for n in (8, 16)]
    timing = Timing(rounds=1, budget_s=budget_s)
    rounds_by_point: dict[Point, list[Measurement]] = {at: [] for at in points}
    ticks = iter(clock)
    schedule, limits = Rounds(points, timing, 0, lambda: next(ticks)), []
    for visit in schedule.each(rounds_by_point):
        limits.append(visit.wall_limit_s)
        rounds_by_point[visit.point].append(measurement(1.0, visit.point))
    return limits


def test_unused_time_of_a_budget_goes_to_the_remaining_points() -> None:
    # Compiling takes 2 of 10 seconds, and the first visit 1 second, so 7 seconds are left.
    clock = [0.0, 2.0, 2.0, 3.0, 3.0, 3.0, 4.0]
    assert shares(10.0, clock) == [4.0, 7.0]
    assert shares(1.0, clock) == [0.0, 0.0]


@pytest.mark.parametrize(
    ("launch_us", "state", "visits"),
    [
        (2e5, State.BURST, 5),
        (4e5, State.BURST, 4),
        (9e6, State.BURST, 3),
        (9e6, State.SUSTAINED, 5),
    ],
)
def test_slow_launches_end_with_the_round_in_which_their_time_is_up(
    launch_us: float, state: State, visits: int
) -> None:
    at = replace(point(), state=state)
    rounds_by_point: dict[Point, list[Measurement]] = {at: []}
    schedule = Rounds([at], Timing(rounds=5), 0)
    series = Series(times_us=(launch_us,), launches_per_sample=1, stop_reason="time limit")
    for visit in schedule.each(rounds_by_point):
        rounds_by_point[at].append(replace(measurement(at=visit.point), series=series))
    assert len(rounds_by_point[at]) == visits
    assert InRounds().is_done(rounds_by_point[at], Timing(rounds=5))
    assert not InRounds().is_done(rounds_by_point[at][:-1], Timing(rounds=5))


def test_a_point_takes_its_fewest_samples_and_slow_launches_fewer() -> None:
    timing = Timing(rounds=5, min_device_s=0.06, slow_launch_s=0.1, few_samples=3, max_wall_s=1.5)
    assert sampling_s(timing, State.BURST, 0.0) == pytest.approx(0.06)
    assert sampling_s(timing, State.BURST, 0.01) == pytest.approx(0.1)  # two launches per round
    assert sampling_s(timing, State.BURST, 0.2) == pytest.approx(1.0)  # one sample per round
    assert sampling_s(timing, State.BURST, 0.4) == pytest.approx(1.6)  # until the time is up
    assert sampling_s(timing, State.BURST, 5.0) == pytest.approx(15.0)  # at least three samples
    assert sampling_s(timing, State.SUSTAINED, 0.01) == 7.5


def test_an_estimate_has_starts_compiling_and_samples_at_a_typical_rate() -> None:
    points = [point(size=(n, n, n)) for n in (512, 1024)]
    foreseen = estimate(points, CPU, Timing(rounds=2, min_device_s=0.06))
    cost = backends()["cpu"].cost
    fixed_s = 2 * cost.start_s + cost.compile_s + 4 * VISIT_S
    assert foreseen.kernels == 1
    assert foreseen.least_s == pytest.approx(fixed_s + 2 * 2 * 0.03)
    # 0.27 and 2.1 GFLOP at 10 GFLOP/s: five samples of the first launch, and two of the second.
    launches_s = (2 * 512**3 / 1e10, 2 * 1024**3 / 1e10)
    assert foreseen.expected_s == pytest.approx(
        fixed_s + 2 * 5 * launches_s[0] + 2 * 2 * launches_s[1]
    )


def test_a_budget_that_is_too_small_is_reported_first() -> None:
    points = [point(size=(n, n, n)) for n in range(1, 101)]
    assert "cannot be met" not in str(estimate(points, CPU, Timing(budget_s=900.0)))
    tight = estimate(points, CPU, Timing(budget_s=1.0))
    assert str(tight).endswith("; a budget of 1 s cannot be met")
    assert tight.expected_s == tight.least_s


def test_large_problems_take_at_least_their_operations_at_peak() -> None:
    # 2·16384³ operations at 66.9 TFLOP/s take 0.13 s, a slow launch, with one sample per round.
    timing, launch_s = Timing(rounds=3), 2 * 16384**3 / 66.9e12
    at, h200 = [point(size=(16384,) * 3)], replace(example("sm_90"), l2_bytes=2**25)
    quick = [point(size=(1, 1, 1))]
    saved_s = 3 * (launch_s - timing.round_device_s)
    least_s = estimate(at, h200, timing).least_s - estimate(quick, h200, timing).least_s
    assert least_s == pytest.approx(saved_s, rel=0.01)
