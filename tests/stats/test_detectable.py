"""Bounds of the slow-downs that a comparison would have found."""

from math import expm1
from typing import Any

import numpy as np
import pytest

from gpubench.stats.detectable import Detectable, smallest
from gpubench.stats.moderated import Floats, Variance
from gpubench.stats.modes import Modes

KERNELS = [None, *["first"] * 6, *["second"] * 4]
ZEROS = np.zeros(len(KERNELS))
FIRST = np.array([float(name == "first") for name in KERNELS])


def bounds(*, hides: Floats = ZEROS, aside: Floats = ZEROS, **changed: object) -> Detectable:
    """Return the bounds of points that repeat exactly, beyond a margin of 0.02."""
    arguments = {"error": ZEROS, "others": ZEROS, "machine": 0.0} | changed
    explain = np.zeros(len(KERNELS), bool)
    return smallest(
        KERNELS,
        variance=Variance(np.full(len(KERNELS), 1e-9), np.full(len(KERNELS), 10.0)),
        margin=np.full(len(KERNELS), 0.02),
        q=0.01,
        modes=Modes({}, explain, hides, aside),
        **arguments,  # type: ignore[arg-type]
    )


def size(log: float) -> Any:
    return pytest.approx(expm1(log), rel=1e-4)


def test_a_slow_down_must_exceed_the_margin_and_the_error_in_either_direction() -> None:
    slow_downs = bounds(error=-0.03 * FIRST)
    assert slow_downs == Detectable(everything=size(0.05), kernel=size(0.05), point=size(0.05))
    one_in_ten = 0.03 * np.eye(len(KERNELS))[-1]
    assert bounds(error=one_in_ten).point == size(0.05)


def test_two_speeds_hide_a_slow_down() -> None:
    assert bounds(hides=0.1 * FIRST).kernel == size(0.1)
    slow_downs = bounds(others=0.1 * FIRST)
    assert (slow_downs.kernel, slow_downs.point) == (size(0.02), size(0.1))


def test_a_slow_down_of_at_least_half_of_the_points_may_be_the_machine_s() -> None:
    slow_downs = bounds(machine=0.01)
    assert slow_downs == Detectable(everything=size(0.03), kernel=size(0.03), point=size(0.02))


def test_a_slow_down_like_a_round_that_was_left_out_is_not_found() -> None:
    assert bounds(aside=0.021 * FIRST).point == size(1.25 * 0.021)
    assert bounds(aside=0.1 * FIRST).point == size(0.02)


def test_without_own_points_nothing_is_said() -> None:
    slow_downs = smallest(
        [None],
        np.zeros(1),
        Variance(np.ones(1), np.ones(1)),
        np.zeros(1),
        0.01,
        Modes({}, np.zeros(1, bool), np.zeros(1), np.zeros(1)),
        np.zeros(1),
        0.0,
    )
    assert slow_downs == Detectable()
