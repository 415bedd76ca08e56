"""Lists and ends the descendants of a process, and measures the CPU time of a process (Linux).

A process that is a subreaper becomes the parent of each descendant whose own parent has ended. So
no descendant is missing from the list: neither a daemon that was forked twice, nor a process that
has called `setsid`. This module imports only the standard library.
"""

import ctypes
import os
import signal
import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from time import clock_gettime_ns, monotonic, sleep

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38

END_S = 2.0
"""Maximum time to end all descendants. Only processes that fork faster than they are killed, or
that the system cannot end yet, run longer."""

_STEP_S = 0.002  # time between two searches for processes to kill


def prctl(option: int, value: int) -> bool:
    """Set an attribute of this process. Return False if the system refuses."""
    call = getattr(ctypes.CDLL(None), "prctl", None)
    return call is not None and call(option, value, 0, 0, 0) == 0


def become_subreaper() -> bool:
    """Make this process a subreaper.

    This process becomes the parent of each descendant whose own parent has ended.
    """
    return prctl(PR_SET_CHILD_SUBREAPER, 1)


def close_to_descendants(*, closed: bool = True) -> bool:
    """Prevent other processes of the user from reading this process's descriptors and memory.

    The system then refuses `/proc/PID/fd`, `/proc/PID/mem`, ptrace and `pidfd_getfd`, except to
    root. `/proc/self` then belongs to root, so this process cannot write there either.
    """
    return prctl(PR_SET_DUMPABLE, 0 if closed else 1)


def end_with_parent(parent: int) -> None:
    """Let the system kill this process when the thread that started it ends."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent has ended already
        os._exit(1)


def drop_capabilities() -> None:
    """Give up the privileges of root in this thread.

    Threads that this thread starts have no privileges either.

    Root cannot then read the memory of a process that has called `close_to_descendants`.
    """
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    call = getattr(ctypes.CDLL(None), "capset", None)
    if call is not None:  # a header (version 3, this thread), and no capability in three sets
        call((ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)())


def descendants(pid: int | None = None, without: Collection[int] = ()) -> list[int]:
    """Return the ids of all descendants of a process, including zombies.

    If `pid` is None, return the descendants of this process.

    The result contains neither the processes in `without` nor the descendants of these processes.
    """
    if pid is None:
        pid = os.getpid()
        with suppress(AttributeError):  # this system has no waitid
            try:
                os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return []
    children: defaultdict[int, list[int]] = defaultdict(list)
    for child, parent in _parents():
        if child not in without:
            children[parent].append(child)
    pids = list(children[pid])
    for each in pids:  # the list grows in the loop
        pids += children[each]
    return pids


def first_child(pid: int) -> int:
    """Return the oldest child of a process, or the process itself if it has no child."""
    children = [child for child, parent in _parents() if parent == pid]
    return min(children, key=lambda child: (_started(child), child), default=pid)


def resident_bytes(pid: int) -> int:
    """Return the number of bytes of memory that a process uses.

    Return 0 if the process has ended.
    """
    return int(fields[21]) * os.sysconf("SC_PAGE_SIZE") if (fields := _stat(pid)) else 0


def _started(pid: int) -> int:
    """Return the time at which a process started, in clock ticks since the machine started."""
    return int(fields[19]) if (fields := _stat(pid)) else 0


def _parents() -> Iterator[tuple[int, int]]:
    """Yield the id of each process, and the id of its parent."""
    names = os.listdir("/proc") if sys.platform == "linux" else ()  # noqa: PTH208 # Path is slow
    for pid in map(int, filter(str.isdecimal, names)):
        if fields := _stat(pid):
            yield pid, int(fields[1])


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat, beginning with the state.

    Return an empty list if the process has ended.
    """
    try:
        # `_parents` reads this file of all processes; `Path.read_text` takes four times as long.
        descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
    except OSError:
        return []
    try:
        content = os.read(descriptor, 4096)
    except OSError:
        return []
    finally:
        os.close(descriptor)
    return content.rpartition(b")")[2].decode().split()  # a name may hold brackets and blanks


def living(pids: Iterable[int]) -> list[int]:
    """Return the ids of the processes that still run. A zombie does not count as running."""
    return [pid for pid in pids if (fields := _stat(pid)) and fields[0] not in "ZX"]


def cpu_ns(pid: int) -> int:
    """Return the CPU time of a process in ns, including the time of threads that have ended.

    The time also includes children that a process has waited for, in steps of 10 ms. A process that
    ignores SIGCHLD does not wait for its children. When such a child ends, its time is lost.
    """
    clock = ctypes.c_int()
    if ctypes.CDLL(None).clock_getcpuclockid(pid, ctypes.byref(clock)):
        return 0  # the process has ended
    fields = _stat(pid)
    ticks = int(fields[13]) + int(fields[14]) if fields else 0  # cutime and cstime
    try:
        own_ns = clock_gettime_ns(clock.value)
    except OSError:
        return 0
    return own_ns + ticks * (10**9 // os.sysconf("SC_CLK_TCK"))


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Stop all descendants of a process while the block under `with` runs."""
    pids: list[int] = []
    try:
        # A process may have forked before it was stopped, so the list is made again.
        while new := [each for each in descendants(pid) if each not in pids]:
            pids += new
            for each in new:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(each, signal.SIGSTOP)
        yield
    finally:
        for each in pids:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(each, signal.SIGCONT)


def end(without: Collection[int] = (), within_s: float = END_S) -> list[int]:
    """Kill all descendants of this process, and return those that still run after the time limit.

    The processes in `without` and their descendants are not killed.
    """
    deadline_s = monotonic() + within_s
    while pids := descendants(without=without):
        for pid in pids:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        for pid in pids:
            with suppress(ChildProcessError):  # the child of another descendant
                os.waitpid(pid, os.WNOHANG)
        if monotonic() > deadline_s:
            return living(pids)
        sleep(_STEP_S)
    return []


@contextmanager
def all_ended() -> Iterator[None]:
    """End all descendants that this process gets during the `with` block, when the block ends.

    The resource tracker of multiprocessing is not ended, because this process still uses it.
    """
    before = frozenset(descendants())
    become_subreaper()
    try:
        yield
    finally:
        end(without=before | _resource_tracker())


def _resource_tracker() -> set[int]:
    """Return a set with the id of multiprocessing's resource tracker, or an empty set."""
    module = sys.modules.get("multiprocessing.resource_tracker")
    pid = getattr(getattr(module, "_resource_tracker", None), "_pid", None)
    return set() if pid is None else {pid}
