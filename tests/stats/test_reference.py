"""The machine's shift by the BLAS, and points with two speeds."""

import numpy as np

from gpubench.stats.moderated import summarize
from gpubench.stats.modes import find_modes, may_be_modes
from gpubench.stats.reference import Shift, machine_shift


def test_a_blas_point_with_one_speed_a_side_does_not_outweigh_the_others() -> None:
    shifts, errors = np.array([0.06, 0.0, 0.0, 0.01]), np.array([0.001, 0.03, 0.03, 0.01])
    blas = np.array([True, True, True, False])
    sides = np.zeros((3, 3)), np.zeros((3, 3))
    shift = machine_shift(shifts, errors, blas, sides, Shift(0.0, 1.0, 1.0), far=0.02)
    assert shift == Shift(0.0, 1.0, 1.0)  # the BLAS points disagree


def test_a_point_further_slower_than_its_two_speeds_does_not_explain_itself() -> None:
    logs = np.log([[1.0, 1.08, 1.08]]), np.log([[1.2, 1.28, 1.28]])
    base, new = map(summarize, logs)
    aside = (np.full((1, 3), np.nan),) * 2
    modes = find_modes((base, new), logs, aside, np.array([0.02]))
    assert list(modes.speeds) == [0]
    assert not modes.explain[0]
    slower = np.array([True])
    assert not may_be_modes(np.array([0.18]), slower, (base, new), modes, q=0.01)[0]
