"""Verdicts on a user's function by a process that does not run it.

A function can change anything in its own process, such as the checks and the clock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter, sleep
from typing import Any

import numpy as np

from gpubench.engine.probe import make_probes, require_exact
from gpubench.engine.verify import WrongError
from gpubench.model import Measurement, Problem

CLOCKED_S, CLOCKED_TIMES, CLOCKED_RATIO, MAX_CLOCKED = 0.05, 6, 4.0, 10_000
"""Launches of a function that take 0.05 s, at most 10,000, are timed by the worker's clock, up to 6
times. The child's time is wrong if they take 4 times as long each time."""

PAUSE_S = 0.2
"""The pause after the first time; it grows by this much after each, so that a few seconds of other
work on the machine do not make a right time wrong."""


def require_exact_outputs(outputs: Sequence[Any], problem: Problem, seed: int) -> None:
    """Raise WrongError unless the outputs are the results of a problem's probes."""
    for probe, output in zip(make_probes(problem, seed), outputs, strict=True):
        require_exact(probe, np, output)


def require_time(result: Measurement, repeat: Callable[[int], object]) -> None:
    """Raise WrongError if launches take far longer by this process's clock than was reported.

    `repeat` lets the other process make a number of launches, and waits for them.
    """
    reported_us = result.series.median_us if result.series else 0.0
    launches = min(MAX_CLOCKED, max(1, round(CLOCKED_S * 1e6 / max(reported_us, 1.0))))
    clocked_s = []
    for attempt in range(CLOCKED_TIMES):
        sleep(attempt * PAUSE_S)
        started = perf_counter()
        repeat(launches)
        clocked_s.append(perf_counter() - started)
        if clocked_s[-1] < CLOCKED_RATIO * max(CLOCKED_S, launches * reported_us / 1e6):
            return
    raise WrongError(
        f"{reported_us:.3g} µs a launch, but {launches:,} launches take "
        f"{min(clocked_s):.3g} s by the clock of another process"
    )
