"""Test, interval and false discovery rate against cases worked by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubench.commands.diff.compare import (
    adjusted,
    least_p,
    log_interval,
    log_ratio,
    p_value,
    rounds_needed,
)

times = st.lists(st.floats(1.0, 1000.0), min_size=1, max_size=6)


def test_two_sides_that_do_not_overlap_have_the_smallest_p_value() -> None:
    # Of 20 ways to choose 3 of 6 ranks, 2 are as extreme.
    assert p_value([1, 2, 3], [4, 5, 6]) == pytest.approx(2 / 20)
    assert least_p(3, 3) == pytest.approx(2 / 20)
    assert least_p(10, 10) == pytest.approx(2 / 184_756)
    assert least_p(1, 1) == 1


def test_one_pair_in_the_unusual_order_doubles_the_p_value() -> None:
    # U = 1: one of 70 arrangements has U = 0 and one U = 1, on either side.
    assert p_value([1, 2, 3, 5], [4, 6, 7, 8]) == pytest.approx(4 / 70)


def test_sides_all_alike_have_a_p_value_of_one() -> None:
    assert p_value([7.0] * 5, [7.0] * 5) == 1


def test_ten_rounds_a_side_are_enough_for_923_points() -> None:
    assert [rounds_needed(points, 0.01) for points in (1, 923, 924)] == [5, 10, 11]


def test_p_values_are_adjusted_by_benjamini_and_hochberg() -> None:
    # Sorted p times count over rank, and never less than a later one's.
    p_values = {"a": 0.03, "b": 0.5, "c": 0.01, "d": 0.02}
    assert adjusted(p_values) == pytest.approx({"a": 0.04, "b": 0.5, "c": 0.04, "d": 0.04})
    assert adjusted({"a": 0.01, "b": 0.04}) == pytest.approx({"a": 0.02, "b": 0.04})
    assert adjusted({}) == {}


def test_the_interval_leaves_out_as_many_pairs_as_the_table_of_the_test_says() -> None:
    # With 5 against 5, U up to 2 is rejected at 5 %: the third pair from either end counts. The
    # logs of the ratios, to base 2, are −3, −2, −2, −1, … 3, 4, 4, 5.
    base = [1, 2, 4, 8, 16]
    new = [2 * time for time in base]
    low, high = log_interval(base, new, 0.05)
    assert (low / math.log(2), high / math.log(2)) == (pytest.approx(-2), pytest.approx(4))


def test_the_critical_values_are_those_of_printed_tables() -> None:
    for rounds, level, critical in ((8, 0.05, 13), (10, 0.05, 23), (10, 0.01, 16), (12, 0.01, 27)):
        base = [math.exp(number) for number in range(rounds)]
        new = [math.exp(20 * number + 0.5) for number in range(rounds)]
        pairs = sorted(20 * j + 0.5 - i for i in range(rounds) for j in range(rounds))
        assert log_interval(base, new, level)[0] == pytest.approx(pairs[critical])


def test_without_a_level_the_interval_is_the_range_of_all_pairs() -> None:
    low, high = log_interval([10, 11], [20, 30], None)
    assert (math.exp(low), math.exp(high)) == (pytest.approx(20 / 11), pytest.approx(3))


@given(times, times)
def test_swapping_the_sides_mirrors_everything(base: list[float], new: list[float]) -> None:
    assert p_value(base, new) == pytest.approx(p_value(new, base))
    assert log_ratio(base, new) == -log_ratio(new, base)
    low, high = log_interval(base, new, None)
    assert log_interval(new, base, None) == (-high, -low)


@given(st.lists(st.floats(1.0, 1000.0), min_size=8, max_size=10), st.floats(0.5, 2.0))
def test_the_interval_holds_the_factor_between_scaled_sides(
    base: list[float], factor: float
) -> None:
    low, high = log_interval(base, [factor * time for time in base], 0.01)
    assert low - 1e-9 <= math.log(factor) <= high + 1e-9
