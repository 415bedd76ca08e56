"""The host's CPUs and memory, as Linux reports them. Standard library only."""

import os
import re
from pathlib import Path

CACHE_VARIABLE = "GPUBENCH_CPU_CACHE_MIB"
"""Environment variable with the size of the CPU's last-level cache, for virtual machines that
report a cache that they share with others."""

CGROUPS = Path("/sys/fs/cgroup")


def cpu_threads() -> int:
    """Return the number of CPUs that this process may run on."""
    return len(os.sched_getaffinity(0))


def free_memory_bytes() -> int:
    """Return the main memory that is free or reclaimable, or 4 GiB if that is not reported.

    In a container it is what the container may still use.
    """
    free = memory_bytes("MemAvailable") or 4 * 2**30
    return min([free, *(limit - used for limit, used in _memory_limits())])


def all_memory_bytes() -> int:
    """Return the main memory of the machine, or of the container."""
    total = memory_bytes("MemTotal") or 4 * 2**30
    return min([total, *(limit for limit, _ in _memory_limits())])


def _memory_limits() -> list[tuple[int, int]]:
    """Return the limit of each control group (version 2) that has one, and what is used of it.

    The group's inactive file cache is not counted as used, because the system takes it back.
    """
    own = read_text("/proc/self/cgroup").rpartition("0::/")[2]
    groups = [CGROUPS / own, *(CGROUPS / own).parents]
    limits = []
    for group in groups[: groups.index(CGROUPS) + 1] if CGROUPS in groups else []:
        limit, used = (read_text(group / f"memory.{name}") for name in ("max", "current"))
        if limit.isdigit() and used.isdigit():
            cached = re.search(
                r"^inactive_file (\d+)", read_text(group / "memory.stat"), re.MULTILINE
            )
            limits.append((int(limit), int(used) - (int(cached[1]) if cached else 0)))
    return limits


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
