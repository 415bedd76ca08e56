"""Execution times from activity records."""

import sys

import pytest

from gpubench.backends.cuda.cupti import load_cupti, per_launch_us
from gpubench.errors import DeviceUnavailableError, LaunchError


def test_each_sample_is_its_kernels_over_its_launches() -> None:
    kernels = [(0, 1000), (2000, 5000), (6000, 7000), (8000, 10_000)]
    assert per_launch_us(kernels, launches=2, count=2) == [2.0, 1.5]


def test_the_kernels_of_one_launch_are_summed() -> None:
    kernels = [(0, 1000), (1000, 1500), (2000, 3000), (3000, 3700)]
    assert per_launch_us(kernels, launches=1, count=2) == [1.5, 1.7]


def test_kernels_that_overlap_count_once() -> None:
    kernels = [(0, 1000), (800, 1500), (2000, 3000), (2100, 2900)]
    assert per_launch_us(kernels, launches=1, count=2) == [1.5, 1.0]


def test_records_may_arrive_in_any_order() -> None:
    kernels = [(6000, 7000), (0, 3000)]
    assert per_launch_us(kernels, launches=1, count=2) == [3.0, 1.0]


def test_lost_records_are_an_error_and_not_a_time() -> None:
    for recorded in (0, 1, 5):
        with pytest.raises(LaunchError, match=f"recorded {recorded} kernels for 4 launches"):
            per_launch_us([(0, 1)] * recorded, launches=2, count=2)


def test_without_cupti_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupti", None)
    with pytest.raises(DeviceUnavailableError, match=r"pip install '.*\[cupti\]'"):
        load_cupti()
