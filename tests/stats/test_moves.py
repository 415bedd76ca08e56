"""Moves (change points) of the times of many points over several results."""

import numpy as np

from gpubench.stats.moves import MARGIN, find_moves, machine_levels, since_anchor

POINTS, RESULTS = 40, 8


def levels(seed: int, scatter: float = 0.004) -> np.ndarray:
    """Return logarithms of times of points that scatter unequally."""
    rng = np.random.default_rng(seed)
    width = scatter * rng.uniform(0.5, 2, (POINTS, 1))
    return 3 + width * rng.standard_normal((POINTS, RESULTS))


def test_of_histories_in_which_nothing_moved_one_in_a_hundred_has_a_move() -> None:
    false = sum(bool(find_moves(levels(seed), np.zeros(POINTS))) for seed in range(60))
    assert false <= 2


def test_a_step_of_six_percent_is_found_at_its_result() -> None:
    hits = exact = 0
    for seed in range(15):
        logs = levels(1000 + seed)
        logs[7, 3:] += np.log(1.06)
        moves = find_moves(logs, np.zeros(POINTS))
        hits += any(move.point == 7 for move in moves)
        exact += [(move.point, move.at) for move in moves] == [(7, 3)]
    assert hits >= 13
    assert exact >= 12


def test_a_bump_has_two_moves_and_a_step_between_two_speeds_has_none() -> None:
    logs = levels(5, 0.001)
    logs[2, 3:5] += 0.08
    moves = find_moves(logs, np.zeros(POINTS))
    assert [(move.point, move.at) for move in moves] == [(2, 3), (2, 5)]
    speeds = np.zeros(POINTS)
    speeds[2] = 0.08
    assert find_moves(logs, speeds) == []


def test_missing_results_are_left_out() -> None:
    logs = levels(6, 0.001)
    logs[2, 4:] += 0.08
    logs[2, [0, 4]] = np.nan
    logs[3, 2:] = np.nan
    logs[5] = 3.0  # without scatter
    moves = find_moves(logs, np.zeros(POINTS))
    assert [(move.point, move.at) for move in moves if move.point < 4] in ([(2, 4)], [(2, 5)])


def test_the_machine_is_what_references_share_and_a_single_one_shows_nothing() -> None:
    logs = levels(7, 0.001)
    logs[:, 5:] += 0.1
    references = np.arange(POINTS) < 9
    machine = machine_levels(logs, references)
    assert np.isclose(machine[5:].mean() - machine[:5].mean(), 0.1, atol=0.005)
    assert find_moves(logs - machine, np.zeros(POINTS)) == []
    assert not machine_levels(logs, np.arange(POINTS) < 1).any()


def test_a_difference_from_the_anchor_has_an_interval_and_a_point_without_it_none() -> None:
    anchor, logs = levels(8, 0.002)[:, :3], levels(9, 0.002)
    logs[4] += np.log(1.05)
    anchor[6] = np.nan
    steps = since_anchor(anchor, logs, [[]] * POINTS, 2 * MARGIN, 0.01)
    assert np.flatnonzero(steps.p <= 0.01).tolist() == [4]
    assert steps.low[4] < np.log(1.05) < steps.high[4]
    assert np.isnan(steps.step[6])
    alone = since_anchor(anchor[:, :1], logs[:, :1], [[]] * POINTS, 2 * MARGIN, 0.01)
    assert np.isfinite(alone.step).sum() == POINTS - 1
    assert np.isnan(alone.p).all()
