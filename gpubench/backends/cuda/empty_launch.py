"""Times a launch of an empty kernel by three independent clocks.

`gpubench selfcheck` compares the three times. The three times also bound the time between the
launches of other kernels.
"""

import statistics
from itertools import repeat
from typing import Any

from gpubench.backends.cuda.cupti import CuptiTimer
from gpubench.backends.cuda.timer import BlockedBatchTimer
from gpubench.errors import LaunchError

FEW_LAUNCHES = 1  # number of launches between two timestamps
MANY_LAUNCHES = 257  # the time of many launches minus the time of few has no overhead
SAMPLES = 15

MAX_BLOCKED_US = 200_000.0


def empty_launch_us(stream: Any, events: BlockedBatchTimer, cupti: CuptiTimer) -> dict[str, float]:
    """Return the microseconds per launch that each of three clocks measures.

    The clocks are timestamps of the device (`device`), CUDA events (`events`), and CUPTI (`cupti`).
    `device` and `events` are times per launch in a stream. `cupti` is the execution time of the
    kernel. Raises LaunchError if the host is too slow to enqueue the launches.
    """
    launch = stream.launch_empty
    few_us, many_us = (
        statistics.median(_between_timestamps_us(stream, launches) for _ in range(SAMPLES))
        for launches in (FEW_LAUNCHES, MANY_LAUNCHES)
    )
    return {
        "device": (many_us - few_us) / (MANY_LAUNCHES - FEW_LAUNCHES),
        "events": statistics.median(events.sample(repeat(launch), MANY_LAUNCHES, SAMPLES)),
        "cupti": statistics.median(cupti.sample(repeat(launch), MANY_LAUNCHES, SAMPLES)),
    }


def _between_timestamps_us(stream: Any, launches: int) -> float:
    """Time launches by a timestamp before and a timestamp after, all behind a blocking kernel.

    The returned time includes the time of a timestamp. Raises LaunchError.
    """
    blocked_us = 2_000.0
    while blocked_us <= MAX_BLOCKED_US:
        stream.block(blocked_us)
        start = stream.record_start()
        for _ in range(launches):
            stream.launch_empty()
        stop = stream.record_stop()
        was_blocked = not start.done
        stream.synchronize()
        if was_blocked:
            return float(stream.between_us(start, stop))
        blocked_us *= 2
    raise LaunchError(
        f"the host is too slow: it needs over {MAX_BLOCKED_US / 1e3:g} ms to enqueue "
        f"{launches} launches"
    )
