"""Nsight Compute's durations and CUPTI's activity records, for `alone.py`."""

import csv
import shutil
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

NCU_METRIC = "gpu__time_duration.sum"

NS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9, "cycle": 1.0}
NS |= {"nsecond": 1.0, "usecond": 1e3, "msecond": 1e6, "second": 1e9}
"""Nanoseconds (or cycles) per unit, in the spellings of different versions of Nsight Compute."""

WARM_UP_CALLS = 10

OWN_KERNELS = ("blocking_kernel", "timestamp_kernel")
"""Kernels of gpubench's timer, whose durations are ignored."""

MARKER = "gpubench_marker"
"""Kernel that runs before and after the calls of a point, to mark them in Nsight Compute's list."""


def ncu_command(log: Path, metrics: str) -> tuple[str, ...]:
    """Return the words before a program's command that let ncu measure its kernels into a log."""
    return (
        *(find_ncu(), "--log-file", str(log), "--metrics", metrics, "--csv"),
        *("--page", "raw", "--print-units", "base", "--clock-control", "none"),
        *("--cache-control", "none", "--profile-from-start", "off", "--target-processes", "all"),
    )


def find_ncu() -> str:
    """Return the command of Nsight Compute. Raise FileNotFoundError if it is missing."""
    places = [*Path("/usr/local/cuda/bin").glob("ncu")]
    places += sorted(Path("/opt/nvidia/nsight-compute").glob("*/ncu"), reverse=True)
    command = shutil.which("ncu") or (str(places[0]) if places else None)
    if command is None:
        raise FileNotFoundError("ncu (Nsight Compute) is not installed")
    return command


def parse_ncu(text: str, metric: str = NCU_METRIC) -> list[tuple[str, float]]:
    """Return name and nanoseconds, or cycles, of the kernels in a log of `ncu --csv --page raw`.

    Raise ValueError if there are no kernels.
    """
    rows = list(csv.DictReader(line for line in text.splitlines() if line.startswith('"')))
    if not rows[1:]:
        raise ValueError("Nsight Compute listed no kernels")
    units, *kernels = rows  # the units come first
    return [
        (row["Kernel Name"], float(row[metric].replace(",", "")) * NS[units[metric]])
        for row in kernels
    ]


def between_markers(kernels: Sequence[tuple[str, float]], points: int) -> list[list[float]]:
    """Return the nanoseconds of each point's kernels. Raise ValueError if a marker is missing."""
    inside: list[list[float]] = [[]]
    for name, nanoseconds in kernels:
        if MARKER in name:
            inside.append([])
        else:
            inside[-1].append(nanoseconds)
    if len(inside) != 2 * points + 1:
        raise ValueError(f"Nsight Compute saw {len(inside) - 1} markers for {points} points")
    return inside[1::2]


def synchronize() -> None:
    """Wait for the device."""
    import cupy

    cupy.cuda.get_current_stream().synchronize()


class Records:
    """CUPTI's activity records, directly from cupti-python.

    They are of kernels, and of memory that is cleared, as libraries do before a kernel.
    """

    def __init__(self) -> None:
        from cupti import cupti

        self._cupti = cupti
        self._kinds = [cupti.ActivityKind.CONCURRENT_KERNEL, cupti.ActivityKind.MEMSET]
        self._spans: list[tuple[int, int, str]] = []
        cupti.activity_register_callbacks(lambda: (8 * 2**20, 0), self._completed)
        for kind in self._kinds:
            cupti.activity_enable(kind)

    def clear(self) -> None:
        """Drop the records so far."""
        self._cupti.activity_flush_all(1)
        self._spans.clear()

    def spans(self) -> list[tuple[int, int]]:
        """Return starts and ends of the kernels since `clear`, without those of the timer."""
        synchronize()
        self._cupti.activity_flush_all(1)
        seen, deadline = -1, time.monotonic() + 2
        while len(self._spans) != seen and time.monotonic() < deadline:  # records may arrive late
            seen = len(self._spans)
            time.sleep(0.01)
            self._cupti.activity_flush_all(1)
        return [
            (start, end)
            for start, end, name in sorted(self._spans)
            if not any(own in name for own in OWN_KERNELS)
        ]

    def _completed(self, records: Sequence[Any]) -> None:
        self._spans += [
            (record.start, record.end, getattr(record, "name", ""))
            for record in records
            if record.kind in self._kinds
        ]


def per_call(durations_ns: Sequence[float], calls: int) -> tuple[float, int]:
    """Return microseconds of the median call, the sum of its kernels, and their number.

    Raise ValueError if the calls have different numbers of kernels.
    """
    kernels, rest = divmod(len(durations_ns), calls)
    if rest or not kernels:
        raise ValueError(f"{len(durations_ns)} kernels in {calls} calls")
    starts = range(0, len(durations_ns), kernels)
    sums = [sum(durations_ns[start : start + kernels]) for start in starts]
    return statistics.median(sums) / 1e3, kernels


def describe(error: BaseException) -> str:
    """Return an exception as one line."""
    first = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
