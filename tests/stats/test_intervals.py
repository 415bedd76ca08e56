"""The interval of a row contains the time as often as stated, in records and simulations."""

from pathlib import Path

import numpy as np
import pytest
from scipy.special import stdtrit

from gpubench.results.row import read
from gpubench.results.rows import BETWEEN_SWEEPS_US
from gpubench.stats.intervals import _student, rounds_interval

RECORDED = Path(__file__).parents[2] / "results" / "h200" / "diff_rounds"


@pytest.mark.parametrize("df", [2, 9, 99])
def test_the_quantiles_are_those_of_the_t_distribution(df: int) -> None:
    assert _student(df) == pytest.approx(stdtrit(df, 0.975), rel=2e-3)


@pytest.mark.parametrize("rounds", [3, 10])
def test_the_interval_holds_the_time_in_95_percent_of_sweeps(rounds: int) -> None:
    rng = np.random.default_rng(rounds)
    held = 0
    for _ in range(2000):
        interval = rounds_interval(100 * np.exp(rng.normal(0, 0.01, rounds)))
        assert interval
        held += interval[0] <= 100 <= interval[1]
    assert held / 2000 == pytest.approx(0.95, abs=0.016)


def test_fewer_than_three_rounds_have_no_interval_and_equal_ones_a_point() -> None:
    assert rounds_interval([1.0, 1.0]) is None
    low, high = rounds_interval([2.0, 2.0, 2.0]) or (0.0, 0.0)
    assert (low, high) == (pytest.approx(2.0), pytest.approx(2.0))


def test_on_recorded_sweeps_it_holds_the_median_of_the_others_at_every_length() -> None:
    sweeps = [
        {row.key: row for row in read(path) if row.median_us} for path in RECORDED.glob("*.gz")
    ]
    keys = set.intersection(*map(set, sweeps))
    held: dict[bool, list[bool]] = {True: [], False: []}
    for key in sorted(keys):
        rounds = [sweep[key].round_medians_us for sweep in sweeps]
        for place, own in enumerate(rounds):
            others = [time for at, times in enumerate(rounds) if at != place for time in times]
            low, high = rounds_interval(own, BETWEEN_SWEEPS_US) or (0.0, 0.0)
            held[np.median(others) < 20].append(low <= np.median(others) <= high)
    # The median of fifteen rounds has an error too, so an exact interval would contain 91 %.
    assert all(np.mean(hits) > 0.88 for hits in held.values())
