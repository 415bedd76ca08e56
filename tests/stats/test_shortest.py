"""The statistical test of shortest times, on times that other work lengthens."""

from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from gpubench.stats.shortest import compare_shortest, decide_by_shortest

SWEEPS, COMPARISONS = 14, 1000


def disturbed(rng: np.random.Generator, *, slower: float = 1.0) -> NDArray[np.float64]:
    """Return logarithms of times. Other work lengthens a third of them."""
    times = slower * rng.normal(100, 1, SWEEPS)
    times *= np.where(rng.random(SWEEPS) < 1 / 3, rng.uniform(1.1, 1.6, SWEEPS), 1)
    return np.log(times)


@cache
def p_values(seed: int, *, slower: float, margin: float) -> NDArray[np.float64]:
    rng = np.random.default_rng(seed)
    sides = [(disturbed(rng), disturbed(rng, slower=slower)) for _ in range(COMPARISONS)]
    return np.array([compare_shortest(*pair, margin) for pair in sides])


@pytest.mark.parametrize("level", [0.05, 0.01])
def test_equal_sides_are_told_apart_at_most_at_the_stated_level(level: float) -> None:
    assert (p_values(1, slower=1, margin=0) <= level).mean() <= 1.5 * level


def test_a_tenth_more_is_found_although_a_third_of_the_sweeps_take_longer() -> None:
    assert (p_values(2, slower=1.1, margin=0.02) <= 0.005).mean() >= 0.8


def test_less_than_the_margin_is_not_found() -> None:
    assert (p_values(3, slower=1.015, margin=0.02) <= 0.01).mean() <= 0.01


def test_if_all_times_of_a_side_are_shorter_p_is_the_probability_of_this_order() -> None:
    base, new = np.log([1.0, 2.0, 3.0]), np.log([4.0, 5.0, 6.0])
    assert compare_shortest(base, new, 0) == pytest.approx(2 / 20)
    assert compare_shortest(new, base, 0) == pytest.approx(2 / 20)


def test_p_is_the_probability_of_all_orders_that_are_at_least_as_extreme() -> None:
    base, new = np.log([1.0, 4.0, 6.0]), np.log([2.0, 3.0, 5.0, 7.0])
    # The base gets 5, 2 and 0 points for its ranks. 17 of 35 orders give it 7 points or more.
    assert compare_shortest(base, new, 0) == pytest.approx(2 * 17 / 35)


def test_one_short_time_of_the_slower_side_hides_nothing() -> None:
    base, new = np.linspace(100, 101, 20), np.linspace(110, 111, 20)
    new[0] = 99
    assert compare_shortest(np.log(base), np.log(new), 0) <= 0.01


def test_a_clock_that_drifts_hides_nothing() -> None:
    rng = np.random.default_rng(4)
    drift = np.linspace(0, 0.15, 40)
    base, new = drift + rng.normal(0, 0.01, 40), drift + rng.normal(0.06, 0.01, 40)
    assert compare_shortest(base, new, 0.02) <= 1e-6
    assert compare_shortest(base, drift + rng.normal(0, 0.01, 40), 0.02) > 0.1


def test_what_a_point_shares_with_the_blas_is_not_its_own() -> None:
    base, new = tuple(range(100, 110)), tuple(range(130, 140))
    p, effect = np.full(2, 0.5), np.zeros(2)
    sides, blas = [(base, new), (base, new)], np.array([False, True])
    decided = decide_by_shortest(sides, blas, np.zeros(2), p, effect)
    assert p[0] == 1
    assert not decided[0]
    alone = decide_by_shortest([(base, new), None], blas, np.zeros(2), p, effect)
    assert alone.tolist() == [True, False]
    assert effect[0] == pytest.approx(np.log(1.3), rel=0.05)
    assert p.tolist() == [pytest.approx(4 * 11 / 184756), 1]
