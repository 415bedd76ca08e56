"""Computes execution times of kernels from CUPTI's activity records, as Nsight Systems does."""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from gpubench.errors import DeviceUnavailableError, LaunchError, install_command

BUFFER_BYTES = 8 * 2**20

MAX_RECORDS = 4096  # maximum number of launches between two flushes of CUPTI's buffers


def load_cupti() -> Any:
    """Return CUPTI's bindings. Raises DeviceUnavailableError if the bindings are not installed."""
    try:
        from cupti import cupti
    except ImportError as error:
        raise DeviceUnavailableError(
            f"--timer cupti needs CUPTI ({error}): {install_command('cupti')}"
        ) from error
    return cupti


class CuptiTimer:
    """Times each kernel from its first to its last instruction, and adds up the times of a call.

    If two kernels overlap, their common time counts once.
    """

    def __init__(self, synchronize: Callable[[], None]) -> None:
        self._cupti = load_cupti()
        self._synchronize = synchronize
        self._kernels: list[tuple[int, int]] = []
        self._cupti.activity_register_callbacks(lambda: (BUFFER_BYTES, 0), self._completed)

    def sample(
        self,
        rotation: Iterator[Callable[[], None]],
        launches: int,
        count: int,
        before: Callable[[], None] | None = None,
    ) -> list[float]:
        """Return execution times in microseconds per launch, one for each of `count` samples.

        The arguments are the arguments of `BlockedBatchTimer.sample`.
        """
        kind = self._cupti.ActivityKind.CONCURRENT_KERNEL
        times: list[float] = []
        while len(times) < count:
            group = max(1, min(count - len(times), MAX_RECORDS // launches))
            self._synchronize()
            self._flush()  # a sample that failed may have left records
            self._kernels.clear()
            self._cupti.activity_enable(kind)
            try:
                for _ in range(group):
                    if before:
                        before()
                    for launch in islice(rotation, launches):
                        launch()
                self._synchronize()
                self._flush()
            finally:
                self._cupti.activity_disable(kind)
            times += per_launch_us(self._kernels, launches, group)
        return times

    def _flush(self) -> None:
        # CUPTI_ACTIVITY_FLAG_FLUSH_FORCED: deliver unfinished buffers too.
        self._cupti.activity_flush_all(1)

    def _completed(self, activities: list[Any]) -> None:
        kind = self._cupti.ActivityKind.CONCURRENT_KERNEL
        self._kernels += [
            (record.start, record.end) for record in activities if record.kind == kind
        ]


def per_launch_us(kernels: list[tuple[int, int]], launches: int, count: int) -> list[float]:
    """Return the microseconds per launch in each sample.

    `kernels` has the start and the end of each kernel in nanoseconds.

    Each launch has the same number of kernels, one or more. Raises LaunchError if the number of
    kernels is not a multiple of the number of launches, for example because records were lost.
    """
    calls = launches * count
    if not kernels or len(kernels) % calls:
        raise LaunchError(
            f"CUPTI recorded {len(kernels)} kernels for {calls} launches: records may be missing"
        )
    durations, free_from = [], 0
    for start, end in sorted(kernels):
        durations.append(max(0, end - max(start, free_from)))
        free_from = max(free_from, end)
    size = len(durations) // count
    return [
        sum(durations[first : first + size]) / launches / 1e3
        for first in range(0, len(durations), size)
    ]
