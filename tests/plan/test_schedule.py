"""How long the rest takes, and what a visit may take of a budget."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubench.model import Timing
from gpubench.plan.schedule import Forecast, sampling_s


def alike(items: Iterable[Any]) -> dict[Any, str]:
    """All items in one group."""
    return dict.fromkeys(items, "")


def test_nothing_is_known_before_the_first_visit() -> None:
    assert Forecast(alike("abc"), rounds=3).left_s == 0


def test_points_not_visited_yet_are_expected_to_cost_the_mean() -> None:
    forecast = Forecast(alike("abc"), rounds=1)
    forecast.visited("a", 2.0, again=True)
    assert forecast.left_s == pytest.approx(4.0)
    forecast.visited("b", 4.0, again=True)
    assert forecast.left_s == pytest.approx(3.0)


def test_a_group_is_expected_to_cost_what_its_own_points_do() -> None:
    forecast = Forecast({"a1": "a", "a2": "a", "b1": "b", "b2": "b", "c": "c"}, rounds=1)
    forecast.visited("a1", 1.0, again=True)
    forecast.visited("b1", 9.0, again=True)
    assert forecast.left_s == pytest.approx(1.0 + 9.0 + 5.0)
    assert forecast.visits_left == 3


def test_visits_of_an_earlier_run_are_done_and_say_nothing_of_the_cost() -> None:
    forecast = Forecast(alike("ab"), rounds=2)
    forecast.visited("a", None, again=True)
    assert forecast.left_s == 0
    assert forecast.visits_left == 3
    forecast.visited("b", 2.0, again=True)
    assert forecast.left_s == pytest.approx(2.0 + 2.0)
    forecast.visited("a", 4.0, again=True)
    assert forecast.left_s == pytest.approx(2.0)
    assert forecast.visits_left == 1


def test_later_rounds_cost_what_the_last_visit_did() -> None:
    forecast = Forecast(alike("ab"), rounds=3)
    forecast.visited("a", 5.0, again=True)
    forecast.visited("b", 1.0, again=True)
    forecast.visited("b", 2.0, again=True)
    assert forecast.left_s == pytest.approx(2 * 5.0 + 1 * 2.0)


def test_a_point_that_failed_costs_nothing_more() -> None:
    forecast = Forecast(alike("ab"), rounds=3)
    forecast.visited("a", 5.0, again=False)
    forecast.visited("b", 1.0, again=True)
    assert forecast.left_s == pytest.approx(2.0)


def test_without_a_budget_there_is_no_share() -> None:
    assert Forecast(alike("ab"), rounds=3).share_s is None


def test_what_one_visit_saves_of_the_budget_the_others_get() -> None:
    forecast = Forecast(alike("ab"), rounds=2, budget_s=8.0)
    assert forecast.share_s == pytest.approx(2.0)
    forecast.visited("a", 0.5, again=True)
    assert forecast.share_s == pytest.approx(2.5)
    forecast.visited("b", 3.5, again=False)
    assert forecast.share_s == pytest.approx(4.0)


def test_an_overdrawn_budget_leaves_nothing_and_never_less() -> None:
    forecast = Forecast(alike("ab"), rounds=1, budget_s=1.0)
    forecast.visited("a", 5.0, again=True)
    assert forecast.share_s == 0


costs = st.lists(st.floats(0.0, 100.0), min_size=1, max_size=8)


@given(costs, st.integers(1, 5), st.floats(0.1, 1e4))
def test_nothing_is_left_after_the_last_visit(
    costs: list[float], rounds: int, budget_s: float
) -> None:
    forecast = Forecast(alike(range(len(costs))), rounds, budget_s)
    for _ in range(rounds):
        for one, seconds in enumerate(costs):
            forecast.visited(one, seconds, again=True)
            assert forecast.left_s >= -1e-6
            assert forecast.share_s <= budget_s
    assert forecast.left_s == pytest.approx(0.0, abs=1e-6)


@given(costs, st.integers(2, 5))
def test_after_one_round_steady_costs_are_foreseen_exactly(costs: list[float], rounds: int) -> None:
    forecast = Forecast(alike(range(len(costs))), rounds)
    for one, seconds in enumerate(costs):
        forecast.visited(one, seconds, again=True)
    assert forecast.left_s == pytest.approx((rounds - 1) * sum(costs))


def test_a_visit_takes_its_fewest_samples_at_the_least_and_its_time_limit_at_the_most() -> None:
    timing = Timing(rounds=3, min_device_s=0.06, max_wall_s=3.0)
    assert sampling_s(timing) == (0.02, 1.0)
    assert sampling_s(timing, 0.01) == (pytest.approx(0.06), 1.0)  # six samples of a launch each
    assert sampling_s(timing, 0.09) == (pytest.approx(0.54), 1.0)


def test_a_slow_launch_is_sampled_less_often_and_may_pass_the_limit() -> None:
    timing = Timing(rounds=3, slow_launch_s=0.1, few_samples=3, max_wall_s=3.0)
    assert sampling_s(timing, 0.2) == (pytest.approx(0.2), 1.0)
    assert sampling_s(timing, 5.0) == (5.0, 5.0)
