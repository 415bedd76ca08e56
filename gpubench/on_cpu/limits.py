"""Limits for a process that runs a user's kernel: no further processes, memory, size of files.

Run as a program, `limits.py COMMAND…`, it sets the limits and becomes the command. Standard library
only, so that the limits cost little time.
"""

import ctypes
import os
import platform
import resource
import struct
import sys
from contextlib import suppress
from pathlib import Path

FILE_BYTES = 2**26
"""Maximum size of a file that a kernel writes, which includes what it prints."""

MAX_PROCESSES = 256
"""Maximum number of processes of this user beyond those that run, where the system has no filter
for system calls."""

SYSTEM_CALLS = {
    "x86_64": (0xC000003E, 56, 435, (57, 58)),
    "aarch64": (0xC00000B7, 220, 435, ()),
}
"""By machine: its number in Linux's audit.h; its system calls clone, clone3, and fork and vfork."""

LOAD, EQUAL, ANY_BIT, ANSWER = 0x20, 0x15, 0x45, 0x06
"""Instructions of a filter (linux/bpf_common.h): load a word, two jumps, return."""

ALLOW, FAIL = 0x7FFF0000, 0x00050000
"""Answers of a filter (linux/seccomp.h). FAIL is added to an error number."""

NOT_PERMITTED, NOT_IMPLEMENTED = 1, 38
NUMBER_AT, MACHINE_AT, FIRST_ARGUMENT_AT = 0, 4, 16
CLONE_THREAD = 0x10000
SET_NO_NEW_PRIVILEGES, SET_SECCOMP, FILTER = 38, 22, 2


def memory_limit() -> int:
    """Return the memory in bytes that a kernel may use: half of the machine's."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def limit_process() -> None:
    """Limit this process and the programs that it becomes, but not their memory.

    Sanitizers reserve far more than they use, so they have an option of their own for that.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _lower(resource.RLIMIT_FSIZE, FILE_BYTES)
    if not _forbid_processes():
        _lower(resource.RLIMIT_NPROC, _processes_of_user() + MAX_PROCESSES)


def _lower(what: int, limit: int) -> None:
    hard = resource.getrlimit(what)[1]
    limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    with suppress(ValueError, OSError):  # a system without this limit
        resource.setrlimit(what, (limit, limit))


def _processes_of_user() -> int:
    """Return the number of threads of this user, which count as processes; 0 without /proc."""
    count = 0
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if process.stat().st_uid == os.getuid():
                count += sum(1 for _ in (process / "task").iterdir())
    return count


def _forbid_processes() -> bool:
    """Let fork fail from now on, and threads start as before. Return whether Linux does that."""
    if sys.platform != "linux" or platform.machine() not in SYSTEM_CALLS:
        return False
    machine, clone, clone3, forks = SYSTEM_CALLS[platform.machine()]
    # One step is a code, how many steps to jump if true and if false, and a number. glibc starts
    # threads by clone where clone3 is not implemented; the filter cannot read clone3's flags.
    steps = [(LOAD, 0, 0, MACHINE_AT), (EQUAL, 1, 0, machine), (ANSWER, 0, 0, ALLOW)]
    steps += [(LOAD, 0, 0, NUMBER_AT)]
    for fork in forks:
        steps += [(EQUAL, 0, 1, fork), (ANSWER, 0, 0, FAIL + NOT_PERMITTED)]
    steps += [(EQUAL, 0, 1, clone3), (ANSWER, 0, 0, FAIL + NOT_IMPLEMENTED)]
    steps += [(EQUAL, 1, 0, clone), (ANSWER, 0, 0, ALLOW)]
    steps += [(LOAD, 0, 0, FIRST_ARGUMENT_AT), (ANY_BIT, 1, 0, CLONE_THREAD)]
    steps += [(ANSWER, 0, 0, FAIL + NOT_PERMITTED), (ANSWER, 0, 0, ALLOW)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = ctypes.create_string_buffer(
        struct.pack("HxxxxxxQ", len(steps), ctypes.addressof(code))
    )
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    if prctl(SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0):
        return False
    return bool(prctl(SET_SECCOMP, FILTER, ctypes.byref(program)) == 0)


if __name__ == "__main__":
    limit_process()
    os.execvp(sys.argv[1], sys.argv[1:])  # noqa: S606 # the command that the caller built
