"""The worker's verdicts on times of functions that its child runs."""

import os
from collections.abc import Iterator
from contextlib import nullcontext

import pytest

from gpubench.engine.judge.verdict import WrongError
from gpubench.engine.outside import parent_clock as clock
from gpubench.engine.outside.parent_clock import require_time
from gpubench.model import CLOCKS_AGREE

REPORTED_US = 4.0


class Child:
    """A child whose requests take 20 ms besides the launches. Other work delays most requests."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, launch_us: float, other: float) -> None:
        self.now_s, self.launch_us = 0.0, launch_us
        self.other_s = self._other(other)
        monkeypatch.setattr(clock, "perf_counter", lambda: self.now_s)
        # In the fake time, no process uses or waits for a core.
        monkeypatch.setattr(clock, "_scheduled", lambda _task: (0.0, 0.0))

    @staticmethod
    def _other(seconds: float) -> Iterator[float]:
        while True:
            yield from (seconds,) * 11
            yield 0.0

    def repeat(self, launches: int) -> None:
        self.now_s += 0.02 + launches * self.launch_us / 1e6 + next(self.other_s)


def test_a_loaded_machine_does_not_make_a_true_time_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    child = Child(monkeypatch, REPORTED_US, other=0.1)
    require_time(REPORTED_US, child.repeat, os.getpid(), by_events=False)


def test_a_time_that_no_batch_confirms_gets_a_ratio(monkeypatch: pytest.MonkeyPatch) -> None:
    child = Child(monkeypatch, 1.3 * REPORTED_US, other=0.0)
    ratio = require_time(REPORTED_US, child.repeat, os.getpid(), by_events=False)
    assert ratio is not None
    assert ratio > CLOCKS_AGREE


@pytest.mark.parametrize("other", [0.0, 0.1])
def test_a_time_too_short_is_always_wrong(monkeypatch: pytest.MonkeyPatch, other: float) -> None:
    child = Child(monkeypatch, 10 * REPORTED_US, other)
    with pytest.raises(WrongError, match=r"^4 µs a launch, but at least \d"):
        require_time(REPORTED_US, child.repeat, os.getpid(), by_events=False)


def test_a_divided_clock_is_wrong_though_its_process_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    child = Child(monkeypatch, REPORTED_US, other=0.0)
    started = child.now_s

    def scheduled(task: str | int) -> tuple[float, float]:
        """Return that the child's process waits for 3/4 of the time, and this process never."""
        spent_s = child.now_s - started if task == os.getpid() else 0.0
        return spent_s / 4, spent_s * 3 / 4

    def repeat(launches: int) -> float:
        child.repeat(launches)
        return child.launch_us / 4

    monkeypatch.setattr(clock, "_scheduled", scheduled)
    with pytest.raises(WrongError, match="by the clock of another process"):
        require_time(REPORTED_US / 4, repeat, os.getpid(), by_events=False)


def test_a_slow_batch_is_repeated_until_one_agrees(monkeypatch: pytest.MonkeyPatch) -> None:
    child = Child(monkeypatch, REPORTED_US, other=0.0)

    def repeat(launches: int) -> None:
        child.launch_us = REPORTED_US * (1.3 if child.now_s < 0.2 else 1.0)
        child.repeat(launches)

    ratio = require_time(REPORTED_US, repeat, os.getpid(), by_events=False)
    assert ratio is not None
    assert ratio <= CLOCKS_AGREE


@pytest.mark.parametrize(
    ("slower", "ran", "waited", "is_wrong"), [(3, 0.3, 0.7, False), (10, 1.0, 0.6, True)]
)
def test_waiting_for_a_core_does_not_count_but_running_does(
    monkeypatch: pytest.MonkeyPatch, slower: float, ran: float, waited: float, is_wrong: bool
) -> None:
    """In the second case the reported waiting and running exceed the time that passed."""
    child = Child(monkeypatch, slower * REPORTED_US, other=0.0)

    def scheduled(task: str | int) -> tuple[float, float]:
        is_child = task == os.getpid()
        waits = is_child or is_wrong
        return ran * child.now_s * is_child, waited * child.now_s * waits

    monkeypatch.setattr(clock, "_scheduled", scheduled)
    with pytest.raises(WrongError) if is_wrong else nullcontext():
        require_time(REPORTED_US, child.repeat, os.getpid(), by_events=False)


def test_short_launches_on_a_gpu_are_not_timed_by_requests() -> None:
    assert require_time(clock.LEAST_US - 1, pytest.fail, 0, by_events=True) is None
