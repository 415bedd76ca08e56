"""The host's CPUs, as Linux tells them; other systems say nothing. Standard library only."""

from __future__ import annotations

import os
import re
import statistics
from pathlib import Path
from time import perf_counter, process_time

from gpubench.model import Host

_TICKS_A_SECOND = 100
"""Of /proc/stat: USER_HZ, the same on every architecture that runs CUDA."""

_BUSY = (0, 1, 2, 5, 6)
"""Fields of /proc/stat that are work: user, nice, system, irq, softirq."""

_STEAL = 7


def cpu_threads() -> int:
    """CPUs that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class HostWatch:
    """From when it is made: what disturbed the host while something was measured.

    A virtual machine may show a core for each of its CPUs, and no steal, where two of them share a
    core of the host: half the speed, which nothing here can see (docs/decisions/0019).
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._ticks = self._read_ticks()
        self._started_s = perf_counter()
        self._own_s = process_time()

    def read(self) -> Host:
        """What happened since."""
        clocks = re.findall(r"^cpu MHz\s*:\s*([\d.]+)", self._text("proc/cpuinfo"), re.MULTILINE)
        wall_s = perf_counter() - self._started_s
        own_s = process_time() - self._own_s
        passed = [now - then for then, now in zip(self._ticks, self._read_ticks(), strict=False)]
        busy_s = sum(passed[field] for field in _BUSY) / _TICKS_A_SECOND if passed else 0.0
        return Host(
            cores=self._cores(),
            mhz=statistics.fmean(map(float, clocks)) if clocks else None,
            steal_percent=100 * passed[_STEAL] / max(1, sum(passed)) if passed else None,
            other_load=max(0.0, busy_s - own_s) / wall_s if passed else None,
        )

    def _cores(self) -> int | None:
        """Physical cores under the CPUs that this process may run on."""
        if not hasattr(os, "sched_getaffinity"):
            return None
        places = {
            self._text(f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
            for cpu in os.sched_getaffinity(0)
        }
        return len(places) if "" not in places else None

    def _read_ticks(self) -> list[int]:
        """Clock ticks of all CPUs by kind of work, since boot; the guests' are among the user's."""
        first, *fields = (self._text("proc/stat").partition("\n")[0] or "none").split()
        return list(map(int, fields[:8])) if first == "cpu" else []

    def _text(self, path: str) -> str:
        try:
            return (self._root / path).read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            return ""
