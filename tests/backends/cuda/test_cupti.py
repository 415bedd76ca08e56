"""CUPTI's activity records give execution times."""

import sys

import pytest

from gpubench.backends.cuda.cupti import load_cupti, per_launch_us
from gpubench.errors import DeviceUnavailableError, LaunchError


@pytest.mark.parametrize(
    ("kernels", "launches", "times_us"),
    [
        ([(0, 1000), (2000, 5000), (6000, 7000), (8000, 10_000)], 2, [2.0, 1.5]),
        ([(0, 1000), (1000, 1500), (2000, 3000), (3000, 3700)], 1, [1.5, 1.7]),
        ([(0, 1000), (800, 1500), (2000, 3000), (2100, 2900)], 1, [1.5, 1.0]),
        ([(6000, 7000), (0, 3000)], 1, [3.0, 1.0]),
    ],
    ids=["two launches", "two kernels of a launch", "kernels that overlap", "any order"],
)
def test_the_kernels_of_a_launch_are_summed_and_those_that_overlap_count_once(
    kernels: list[tuple[int, int]], launches: int, times_us: list[float]
) -> None:
    assert per_launch_us(kernels, launches=launches, count=2) == times_us


@pytest.mark.parametrize("recorded", [0, 1, 5])
def test_lost_records_are_an_error_and_not_a_time(recorded: int) -> None:
    with pytest.raises(LaunchError, match=f"recorded {recorded} kernels for 4 launches"):
        per_launch_us([(0, 1)] * recorded, launches=2, count=2)


def test_without_cupti_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupti", None)
    with pytest.raises(DeviceUnavailableError, match=r"pip install '.*\[cupti\]'"):
        load_cupti()
