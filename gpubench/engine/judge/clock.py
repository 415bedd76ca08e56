"""Compares the time that a child reports with this process's clock.

A function can change anything in its own process, such as the clock.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from gpubench.engine.judge.verdict import ClockTimes, require
from gpubench.model import Measurement

BATCHES_S = (0.002, 0.004, 0.008, 0.016, 0.032)
"""Durations of the batches of launches that the worker times. A short batch may end before a loaded
machine runs another process. In a long batch, the time of the request itself counts little."""

PATIENCE_S, RATIO = 3.0, 4.0
"""The child's time is wrong if all batches in 3 s take 4 times as long by the worker's clock."""


def require_time(result: Measurement, repeat: Callable[[int], object], pid: int) -> None:
    """Raise WrongError if launches take far longer by this process's clock than was reported.

    `repeat` lets the process `pid` make a number of launches, and waits for them. The time in which
    either process waits for a core does not count. Both may wait at once, so the launches take at
    least the time in which the process runs.
    """
    reported_us = result.series.median_us if result.series else 0.0
    launches_us: list[float] = []
    spent_s = 0.0
    while spent_s < PATIENCE_S:
        for batch_s in BATCHES_S:
            launches = max(1, round(batch_s * 1e6 / max(reported_us, 1.0)))
            before, started = (_scheduled("thread-self"), _scheduled(pid)), perf_counter()
            repeat(launches)
            elapsed_s = perf_counter() - started
            own, other = _scheduled("thread-self"), _scheduled(pid)
            waits_s = own.waited_s - before[0].waited_s + other.waited_s - before[1].waited_s
            taken_s = max(elapsed_s - waits_s, other.ran_s - before[1].ran_s)
            if taken_s < RATIO * max(batch_s, launches * reported_us / 1e6):
                return
            launches_us.append(taken_s * 1e6 / launches)
            spent_s += elapsed_s
    require(ClockTimes(reported_us=reported_us, parent_us=min(launches_us), ratio=1.0))


class _Scheduled(NamedTuple):
    """How long a thread ran, and how long it waited for a core."""

    ran_s: float
    waited_s: float


def _scheduled(task: str | int) -> _Scheduled:
    """Return the times of a process's first thread. Zeros where the system has none (Linux has)."""
    try:
        ran, waited, _ = Path(f"/proc/{task}/schedstat").read_text().split()
        return _Scheduled(int(ran) / 1e9, int(waited) / 1e9)
    except (OSError, ValueError):
        return _Scheduled(0.0, 0.0)
