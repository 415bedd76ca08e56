"""The host's CPUs and memory, as Linux reports them. Standard library only."""

import os
import re
import statistics
from pathlib import Path
from time import perf_counter, process_time

from gpubench.model import Host

_TICKS_A_SECOND = 100
"""Ticks of /proc/stat: USER_HZ, the same on every architecture that runs CUDA."""

_BUSY = (0, 1, 2, 5, 6)
"""Fields of /proc/stat that count work: user, nice, system, irq, softirq."""

_STEAL = 7

CACHE_VARIABLE = "GPUBENCH_CPU_CACHE_MIB"
"""Environment variable with the size of the CPU's last-level cache, for virtual machines that
report a cache that they share with others."""


def cpu_threads() -> int:
    """Return the number of CPUs that this process may run on."""
    return len(_usable_cpus()) or os.cpu_count() or 1


def _usable_cpus() -> set[int]:
    """Return the CPUs that this process may run on; none where the system does not say."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()


def free_memory_bytes() -> int:
    """Return the main memory that is free or reclaimable, or 4 GiB if that is not reported."""
    return memory_bytes("MemAvailable") or 4 * 2**30


def memory_bytes(name: str) -> int | None:
    """Return an entry of /proc/meminfo, or None without one."""
    match = re.search(rf"{name}:\s+(\d+) kB", read_text("/proc/meminfo"))
    return int(match[1]) * 1024 if match else None


def read_text(path: str | Path) -> str:
    """Return a file of the system without its final line end; empty if it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


class HostWatch:
    """Records what disturbs the host from the construction of this object on.

    On a virtual machine two CPUs may share a core of the host, which halves their speed. The system
    then reports a core for each CPU and no steal, so this cannot be seen (docs/decisions/0019).
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._ticks = self._read_ticks()
        self._started_s = perf_counter()
        self._own_s = process_time()

    def read(self) -> Host:
        """Return what has happened since the construction."""
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
        """Return the number of physical cores behind the CPUs that this process may use."""
        places = {
            self._text(f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
            for cpu in _usable_cpus()
        }
        return len(places) if places and "" not in places else None

    def _read_ticks(self) -> list[int]:
        """Return clock ticks since boot by kind of work, of the CPUs that this process may use.

        User ticks include guests.
        """
        names = {f"cpu{cpu}" for cpu in _usable_cpus()} or {"cpu"}  # or the line of all CPUs
        lines = map(str.split, self._text("proc/stat").splitlines())
        ticks = [map(int, fields[:8]) for name, *fields in lines if name in names]
        return [sum(column) for column in zip(*ticks, strict=True)]

    def _text(self, path: str) -> str:
        return read_text(self._root / path)
