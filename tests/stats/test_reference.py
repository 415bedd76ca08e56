"""The BLAS shows the machine's shift, and some points have two speeds."""

import numpy as np

from gpubench.stats.moderated import summarize
from gpubench.stats.modes import find_modes, may_be_modes
from gpubench.stats.reference import Shift, machine_shift, shift_by_blas


def test_a_blas_point_with_one_speed_per_side_does_not_outweigh_the_others() -> None:
    shifts, errors = np.array([0.06, 0.0, 0.0, 0.01]), np.array([0.001, 0.03, 0.03, 0.01])
    blas = np.array([True, True, True, False])
    sides = np.zeros((3, 3)), np.zeros((3, 3))
    shift = shift_by_blas(shifts, errors, blas, sides, Shift(0.0, 1.0, 1.0), far=0.02)
    assert shift == Shift(0.0, 1.0, 1.0)  # the BLAS points disagree


def shift_of(moved: list[float], references: list[int], noise: float = 1e-3) -> Shift:
    """Return the machine's shift by points that moved. 0 is the BLAS, -1 has changed code."""
    numbers = np.array(references)
    rounds = np.random.default_rng(0).normal(0, noise, (2, len(moved), 5))
    errors = np.full(len(moved), noise)
    level = Shift(0.0, noise**2, 8.0)
    logs = rounds[0], rounds[1]
    return machine_shift(np.array(moved), errors, numbers == 0, numbers, logs, level, far=0.02)


def test_unchanged_kernels_outvote_a_blas_that_moved_alone() -> None:
    moved = [-0.03, -0.03, 0.0, 0.001, 0.0, 0.05]
    shift = shift_of(moved, [0, 0, 1, 2, 3, -1])
    assert abs(shift.shift) < 0.002
    assert abs(shift.library + 0.03) < 0.002
    assert shift.variance < 0.002**2
    by_blas_alone = shift_of(moved, [0, 0, -1, -1, -1, -1])
    assert abs(by_blas_alone.shift + 0.03) < 0.002


def test_references_that_move_with_the_machine_show_its_shift() -> None:
    shift = shift_of([-0.1, -0.1, -0.1, -0.1, -0.1, 0.0], [0, 0, 1, 2, 3, -1])
    assert abs(shift.shift + 0.1) < 0.002
    assert shift.library == 0


def test_references_that_moved_apart_widen_the_interval() -> None:
    halves = shift_of([0.0, 0.0, 0.05, 0.05, 0.0, 0.05], [0, 0, 1, 2, 3, 4])
    assert halves.variance > 0.02**2
    single = shift_of([-0.03, -0.03, 0.0, 0.05], [0, 0, 1, -1])
    assert (single.shift, single.variance > 0.01**2) == (0.0, True)
    assert shift_of([-0.1, -0.1, -0.1, 0.0], [0, 0, 1, -1]).variance < 0.002**2


def test_a_point_further_slower_than_its_two_speeds_does_not_explain_itself() -> None:
    logs = np.log([[1.0, 1.08, 1.08]]), np.log([[1.2, 1.28, 1.28]])
    base, new = map(summarize, logs)
    aside = (np.full((1, 3), np.nan),) * 2
    modes = find_modes((base, new), logs, aside, np.array([0.02]))
    assert list(modes.speeds) == [0]
    assert not modes.explain[0]
    slower = np.array([True])
    assert not may_be_modes(np.array([0.18]), slower, (base, new), modes, q=0.01)[0]
