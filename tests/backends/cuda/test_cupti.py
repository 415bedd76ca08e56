"""CUPTI's activity records give execution times."""

import itertools
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from gpubench.backends.cuda.cupti import CuptiTimer, load_cupti, per_launch_us
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


class Cupti:
    """CUPTI's bindings, which keep the records of kernels until a flush."""

    ActivityKind = SimpleNamespace(CONCURRENT_KERNEL=10)

    def __init__(self) -> None:
        self.is_enabled, self.now_ns = False, 0
        self.records: list[Any] = []

    def activity_register_callbacks(self, _requested: Any, completed: Callable[..., None]) -> None:
        self.completed = completed

    def activity_enable(self, _kind: int) -> None:
        self.is_enabled = True

    def activity_disable(self, _kind: int) -> None:
        self.is_enabled = False

    def activity_flush_all(self, _flag: int) -> None:
        self.completed(self.records)
        self.records = []

    def launch(self) -> None:
        start_ns, self.now_ns = self.now_ns, self.now_ns + 2000
        if self.is_enabled:
            kind = self.ActivityKind.CONCURRENT_KERNEL
            self.records.append(SimpleNamespace(kind=kind, start=start_ns, end=start_ns + 1000))


def test_a_sample_that_failed_leaves_no_records_to_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cupti = Cupti()
    monkeypatch.setitem(sys.modules, "cupti", SimpleNamespace(cupti=cupti))
    timer = CuptiTimer(lambda: None)

    def fail() -> None:
        raise LaunchError("of this test")

    with pytest.raises(LaunchError, match="of this test"):
        timer.sample(iter([cupti.launch, fail]), 2, 1)
    assert timer.sample(itertools.repeat(cupti.launch), 2, 2) == [1.0, 1.0]


def test_without_cupti_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupti", None)
    with pytest.raises(DeviceUnavailableError, match=r"pip install '.*\[cupti\]'"):
        load_cupti()
