"""The moderated t-test, compared with its definition, SciPy and simulations."""

import numpy as np
import pytest
from scipy import stats

from gpubench.stats.moderated import (
    Floats,
    _inverse_trigamma,
    adjusted,
    half_widths,
    moderate,
    p_values,
    shrunk,
    summarize,
)

RNG = np.random.default_rng(2006)


def test_the_statistics_of_each_point_are_those_of_its_own_rounds() -> None:
    none = np.nan
    logs = np.array([[3.0, none, 1.0, 1.5], [none, 7.0, none, none], [2.0, 2.5, 9.0, 9.5]])
    summary = summarize(logs)
    assert summary.mean == pytest.approx([5.5 / 3, 7.0, 5.75])
    assert summary.squares == pytest.approx([np.nanvar(logs[0]) * 3, 0.0, np.var(logs[2]) * 4])
    assert (summary.low.tolist(), summary.high.tolist()) == ([1.0, 7.0, 2.0], [3.0, 7.0, 9.5])
    assert summary.gap == pytest.approx([1.5, 0.0, 6.5])
    assert summary.group == pytest.approx([0.5, 0.0, 0.5])


def test_one_point_alone_is_judged_by_the_t_test_of_the_textbook() -> None:
    base, new = RNG.normal(5.0, 0.01, 6), RNG.normal(5.02, 0.01, 4)
    sides = summarize(base[None]), summarize(new[None])
    variance = moderate(*sides)
    p = p_values(sides[1].mean - sides[0].mean, np.zeros(1), variance)
    expected = stats.ttest_ind(base, new)
    assert p[0] == pytest.approx(expected.pvalue)
    low, high = expected.confidence_interval(0.99)
    assert 2 * half_widths(variance, 0.01)[0] == pytest.approx(high - low)


def drawn(points: int, rounds: int, prior_df: float, sd: float) -> tuple[Floats, Floats]:
    """Return rounds of two sides, with variances drawn from the prior."""
    sds = sd * np.sqrt(prior_df / RNG.chisquare(prior_df, (points, 1)))
    return sds * RNG.standard_normal((points, rounds)), sds * RNG.standard_normal((points, rounds))


def test_the_prior_is_recovered_from_points_that_were_drawn_from_it() -> None:
    base, new = drawn(20_000, 3, 6.0, 0.01)
    variance = moderate(summarize(base), summarize(new))
    assert variance.df[0] - 4 == pytest.approx(6.0, rel=0.15)


def test_points_that_repeat_badly_keep_their_variance_and_do_not_shape_the_prior() -> None:
    own = np.random.default_rng(3).chisquare(8, 200) / 8
    own[:10] *= 400
    variance, df = shrunk(own, np.full(200, 8.0))
    assert variance[:10].tolist() == own[:10].tolist()
    assert df[10:].min() > 50


@pytest.mark.parametrize("rounds", [3, 5, 10])
def test_p_values_of_points_that_moved_by_just_the_margin_are_uniform(rounds: int) -> None:
    base, new = drawn(20_000, rounds, 4.0, 0.002)
    sides = summarize(base), summarize(0.02 + new)
    effect = sides[1].mean - sides[0].mean
    p = p_values(effect, np.full(len(base), 0.02), moderate(*sides))
    for level in (0.5, 0.1, 0.01):
        assert np.mean(p < level) == pytest.approx(level, rel=0.25)


def test_a_point_with_one_round_per_side_has_no_p_value() -> None:
    logs = np.array([[0.0, np.nan, np.nan], [0.0, 0.0, 0.0]])
    variance = moderate(summarize(logs), summarize(1 + logs))
    assert np.isnan(half_widths(variance, 0.01)).tolist() == [True, False]
    assert p_values(np.ones(2), np.zeros(2), variance)[0] == 1.0


def test_p_values_are_adjusted_over_all_points() -> None:
    assert adjusted(np.array([0.01, 0.02, 0.9, 1.0])) == pytest.approx([0.04, 0.04, 1.0, 1.0])
    assert len(adjusted(np.array([]))) == 0
    drawn_p = RNG.uniform(size=200).round(2)  # rounding makes ties
    assert adjusted(drawn_p) == pytest.approx(stats.false_discovery_control(drawn_p))


@pytest.mark.parametrize("value", [1e-3, 0.1, 1.6449, 50.0])
def test_trigamma_is_inverted(value: float) -> None:
    from scipy.special import polygamma

    assert polygamma(1, _inverse_trigamma(value)) == pytest.approx(value)
