"""Returns the number of CPUs and the memory of the host, as Linux reports them.

The module uses only the standard library.
"""

import math
import os
import re
from collections.abc import Iterator
from pathlib import Path

CACHE_VARIABLE = "GPUBENCH_CPU_CACHE_MIB"
"""Environment variable with the size of the CPU's last-level cache in MiB, for virtual machines
whose reported cache is shared with other virtual machines."""

CGROUPS = Path("/sys/fs/cgroup")


def cpu_threads() -> int:
    """Return the number of CPUs that this process may use. A container's quota is rounded up."""
    quotas = (math.ceil(quota) for quota in _cpu_quotas())
    return max(1, min([len(os.sched_getaffinity(0)), *quotas]))


def free_memory_bytes() -> int:
    """Return the number of bytes of main memory that are free or reclaimable.

    If Linux does not report the number, 4 GiB are assumed. In a container, the result is at most
    the number of bytes that the container may still use.
    """
    free = memory_bytes("MemAvailable")
    free = 4 * 2**30 if free is None else free
    return min([free, *(limit - used for limit, used in _memory_limits())])


def all_memory_bytes() -> int:
    """Return the number of bytes of main memory that the machine or the container has."""
    total = memory_bytes("MemTotal") or 4 * 2**30
    return min([total, *(limit for limit, _ in _memory_limits())])


def _groups(controller: str) -> Iterator[Path]:
    """Yield this process's control groups and their parents (cgroup version 1 or 2)."""
    for line in read_text("/proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        root = CGROUPS / controller if controllers else CGROUPS  # version 1 has several trees
        group = root / path.strip("/")
        groups = [group, *group.parents]
        if root in groups and (not controllers or controller in controllers.split(",")):
            yield from groups[: groups.index(root) + 1]


def _cpu_quotas() -> Iterator[float]:
    """Yield the number of CPUs that each control group with a quota may use."""
    for group in _groups("cpu"):
        quota, _, period = read_text(group / "cpu.max").partition(" ")
        if not period:
            quota, period = (
                read_text(group / f"cpu.cfs_{name}_us") for name in ("quota", "period")
            )
        if quota.isdigit() and period.isdigit():  # if there is no quota, the text is max or -1
            yield int(quota) / int(period)


def _memory_limits() -> Iterator[tuple[int, int]]:
    """Yield the memory limit of each control group that has a limit, and the memory in use.

    The group's inactive file cache does not count as used, because the system can reclaim it.
    """
    for group in _groups("memory"):
        for names in (("max", "current"), ("limit_in_bytes", "usage_in_bytes")):
            limit, used = (read_text(group / f"memory.{name}") for name in names)
            if limit.isdigit() and used.isdigit():
                statistics = read_text(group / "memory.stat")
                cached = re.findall(r"^(?:total_)?inactive_file (\d+)", statistics, re.MULTILINE)
                yield int(limit), int(used) - int([0, *cached][-1])  # the last match has "total_"


def oom_kills() -> int:
    """Return the number of processes of this control group that were killed for lack of memory."""
    group = next(_groups("memory"), CGROUPS)
    events = (read_text(group / f"memory.{name}") for name in ("events", "oom_control"))
    kills = re.search(r"^oom_kill (\d+)", "\n".join(events), re.MULTILINE)
    return int(kills[1]) if kills else 0


def memory_bytes(name: str) -> int | None:
    """Return an entry of /proc/meminfo in bytes, or None if it is missing."""
    match = re.search(rf"{name}:\s+(\d+) kB", read_text("/proc/meminfo"))
    return int(match[1]) * 1024 if match else None


def read_text(path: str | Path) -> str:
    """Return the stripped text of a system file, or an empty text if the file cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
