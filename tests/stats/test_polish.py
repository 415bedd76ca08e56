"""Median polish removes the effect of a round on all points, and nothing else."""

import numpy as np
import pytest

from gpubench.stats.intervals import median_scale, robust_mean
from gpubench.stats.polish import MIN_POINTS, polish, row_medians

RNG = np.random.default_rng(41)


def test_a_round_that_slowed_all_points_is_removed_whatever_the_points_times_are() -> None:
    points = RNG.uniform(0, 5, (30, 1))
    quiet = points + RNG.normal(0, 0.002, (30, 5))
    shifted = quiet + np.array([0.0, 0.0, np.log(1.3), 0.0, 0.0])
    polished = polish(shifted)
    assert polished.effects[2] - polished.effects[0] == pytest.approx(np.log(1.3), abs=0.002)
    assert np.abs(polished.logs - quiet).max() < 0.004
    assert not polished.left_out.any()


def test_points_that_lack_rounds_do_not_disturb_the_others() -> None:
    logs = RNG.uniform(0, 5, (30, 1)) + RNG.normal(0, 0.002, (30, 5)) + 0.2 * np.arange(5)
    logs[:10, 3:] = np.nan
    polished = polish(logs)
    assert np.isnan(polished.logs).tolist() == np.isnan(logs).tolist()
    assert np.nanstd(polished.logs, axis=1).max() < 0.01


def test_a_round_of_few_points_or_few_points_in_all_stay_as_they_are() -> None:
    few_points = RNG.normal(0, 0.1, (MIN_POINTS - 1, 5))
    assert polish(few_points).logs.tolist() == few_points.tolist()
    logs = np.full((20, 6), np.nan)
    logs[:, :5] = RNG.normal(0, 0.001, (20, 5))
    logs[0, 5] = 1.0
    assert polish(logs).effects[5] == 0.0


def test_an_uneven_round_is_left_out_where_three_others_stay() -> None:
    logs = RNG.normal(0, 0.002, (40, 5))
    logs[:, 1] += RNG.uniform(0, 0.5, 40)
    assert np.isnan(polish(logs).logs[:, 1]).all()
    assert not np.isnan(polish(logs[:, :3]).logs).any()


def test_medians_leave_out_missing_values() -> None:
    rows = np.array([[3.0, np.nan, 1.0], [np.nan, 5.0, np.nan], [np.nan] * 3])
    assert row_medians(rows).tolist() == [2.0, 5.0, 0.0]


@pytest.mark.parametrize("count", [3, 5, 10])
def test_the_robust_mean_covers_the_truth_with_and_without_a_wild_value(count: int) -> None:
    from scipy.special import stdtrit

    rng = np.random.default_rng(count)
    for wild in (0.0, 30.0):
        missed = 0
        for _ in range(1000):
            values = rng.standard_normal(count)
            values[0] += wild
            mean, error, df = robust_mean(values)
            missed += abs(mean) > stdtrit(df, 0.975) * error
        assert missed <= 65


def test_the_median_scale_of_normal_values_is_their_standard_deviation() -> None:
    for count in (3, 5, 9, 20):
        scales = [median_scale(RNG.standard_normal(count)) for _ in range(800)]
        assert np.mean(scales) == pytest.approx(1.0, rel=0.06)
    assert median_scale(np.array([3.0])) == 0.0
