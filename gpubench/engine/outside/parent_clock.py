"""Compares the time that a child reports with the time by this process's clock.

A function can change anything in its own process, such as the clock.
"""

import math
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import TypeVar

from gpubench.engine.judge.verdict import require, why_unconfirmed
from gpubench.hardware.host import read_text
from gpubench.model import CLOCKS_AGREE

BATCH_S = 0.05  # duration of a batch of launches that the parent times

LAUNCH_US = 2.0
"""Time on the host, for each launch, that the child does not count, such as the time to select
operands. This time is subtracted, except for launches that wait in the queue of a GPU: the host has
already enqueued these launches."""

GROWTH = 5
"""Ratio of the length of a batch to the length of the previous batch. The first batch has few
launches, because the reported time may be too short."""

REQUEST_S = 3e-4  # time of a request without its launches; it is subtracted

PATIENCE_S = 3.0
"""Time, in seconds, after which the child's time is judged wrong if no batch has confirmed this
time. Other work on the machine does not disturb all batches."""

AGREEING_S = 0.5
"""Time, in seconds, in which a batch confirms the reported time only if its time is within
`CLOCKS_AGREE`. Later, the larger ratio `RATIO` is enough."""

RATIO = 1.5
"""Ratio of the time of a batch by the parent's clock to the reported time, above which the reported
time is judged wrong. The clock and the load of the device may differ between the two
measurements."""

LEAST_US = 200.0
"""Minimum time of a launch on a GPU that is timed in this module. Shorter launches cannot be
distinguished from the time to enqueue them. `OnNewOperands` times shorter launches, which are held
in the GPU's queue."""

T = TypeVar("T")


def require_time(
    reported_us: float, repeat: Callable[[int], float | None], pid: int, *, by_events: bool
) -> float | None:
    """Return the time per launch by this process's clock, divided by the reported time.

    `repeat` lets the process `pid` make a number of launches, waits for them, and returns the time
    per launch by that process's clock, or None. Return None for launches on a GPU that are too
    short. Raises WrongError if launches take longer than was reported.

    The time in which either process waits for a core is subtracted. Both processes may wait at the
    same time, which would be subtracted twice. So the result is at least the time in which the
    process `pid` ran.
    """
    if by_events and reported_us < LEAST_US:
        return None
    least_us, spent_s, batch_s = math.inf, 0.0, BATCH_S / GROWTH**2
    while spent_s < PATIENCE_S:
        launches = max(1, math.ceil(batch_s * 1e6 / max(reported_us, 1.0)))
        claimed_us, taken_s, elapsed_s, seen_s = timed(partial(repeat, launches), pid)
        spent_s += elapsed_s
        parent_us, seen_us = (
            max(0.0, (seconds - REQUEST_S) * 1e6 / launches - LAUNCH_US)
            for seconds in (taken_s, seen_s)
        )
        claimed_us = seen_us if claimed_us is None else claimed_us
        why_batch = why_unconfirmed(claimed_us, seen_us, RATIO)
        least_us = min(least_us, parent_us)
        if batch_s < BATCH_S and elapsed_s < 10 * BATCH_S:
            batch_s, least_us = batch_s * GROWTH, math.inf if spent_s < PATIENCE_S else least_us
            continue
        ratio = CLOCKS_AGREE if spent_s < AGREEING_S else RATIO
        if not why_batch and parent_us <= min(CLOCKS_AGREE * claimed_us, ratio * reported_us):
            return parent_us / reported_us
    why = why_unconfirmed(reported_us, least_us, CLOCKS_AGREE) or why_batch
    require(why, may_be_load=True)
    return least_us / reported_us


def timed(request: Callable[[], T], pid: int) -> tuple[T, float, float, float]:
    """Return the answer to a request, and the request's time in seconds, measured in three ways.

    The first time leaves out the time in which either process waits for a core. The second time is
    the whole time. The third time leaves out only the time in which this process waits for a core.
    The third time is compared with a time by the clock of the process `pid`, which includes the
    time in which the process `pid` waits.
    """
    _, own_before_s = _scheduled("thread-self")
    ran_before_s, other_before_s = _scheduled(pid)
    started = perf_counter()
    answer = request()
    elapsed_s = perf_counter() - started
    own_wait_s = _scheduled("thread-self")[1] - own_before_s
    ran_s, other_wait_s = _scheduled(pid)
    waits_s = own_wait_s + other_wait_s - other_before_s
    taken_s = max(elapsed_s - waits_s, ran_s - ran_before_s)
    return answer, taken_s, elapsed_s, elapsed_s - own_wait_s


def _scheduled(task: str | int) -> tuple[float, float]:
    """Return how many seconds a process's first thread ran, and how many it waited for a core.

    Linux reports both times. On other systems, both times are zero.
    """
    ran, waited, *_ = (*read_text(f"/proc/{task}/schedstat").split(), 0, 0)
    return int(ran) / 1e9, int(waited) / 1e9
