"""The host's CPUs and memory, as Linux reports them. Standard library only."""

import os
import re
from pathlib import Path

CACHE_VARIABLE = "GPUBENCH_CPU_CACHE_MIB"
"""Environment variable with the size of the CPU's last-level cache, for virtual machines that
report a cache that they share with others."""


def cpu_threads() -> int:
    """Return the number of CPUs that this process may run on."""
    return len(os.sched_getaffinity(0))


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
