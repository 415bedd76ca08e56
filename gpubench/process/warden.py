"""The warden, a process between gpubench and a child, which ends all processes of the child.

The warden is a subreaper, so its list of the child's descendants is complete. The warden kills all
descendants when the child has ended, when gpubench requests this, and when gpubench has ended, even
by SIGKILL. The warden then ends with the exit code or the signal of the child. This module imports
only the standard library.
"""

import json
import os
import resource
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import NoReturn

from gpubench.hardware.host import all_memory_bytes, free_memory_bytes
from gpubench.process import descendants

_ENDING = {signal.SIGTERM, signal.SIGHUP, signal.SIGINT}
_AWAITED = {*_ENDING, signal.SIGCHLD}


LOOK_EVERY_S = 1.0
"""Time between two checks of the memory in seconds. A check takes a third of a millisecond."""

MIN_FREE = 0.05
"""Fraction of the machine's memory that must stay free while a child uses more than `MAX_USED`."""

MAX_USED = 0.4
"""Fraction of the machine's memory that a child may always use."""

OVER_MEMORY = 247
"""Exit code of a warden whose child used too much memory."""

CANNOT_FORK = 246
"""Exit code of a warden if the system refuses to start another process."""

GRACE_S = 1.0
"""Time in seconds between SIGTERM and SIGKILL for a program that does not end."""


def follow(words: Sequence[str]) -> NoReturn:
    """Become the warden of another program.

    `words` are the id of the parent, the limits, and the command of the program.
    """
    parent, limits, *command = words
    watch(int(parent), GRACE_S)
    for what, limit in json.loads(limits):
        with suppress(OSError, ValueError):  # the hard limit is lower
            # A lower hard limit would make AddressSanitizer fail, which sets the soft limit.
            resource.setrlimit(what, (limit, resource.getrlimit(what)[1]))
    try:
        os.execvp(command[0], command)  # noqa: S606 # what this package or its user named
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode())
        os._exit(127)  # as a shell does


def watch(parent: int, grace_s: float = 0.0) -> None:
    """Fork this process, and return in the child. This process becomes the child's warden.

    In the warden, the function never returns.

    `parent` is the process that started this process. The warden ends the child by SIGTERM, and
    kills the child after `grace_s`.
    """
    for number in _AWAITED - {signal.SIGINT}:
        signal.signal(number, signal.SIG_DFL)  # a process inherits the signals its parent ignores
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
    descendants.become_subreaper()
    descendants.prctl(descendants.PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # the parent has ended already
        os._exit(1)
    warden = os.getpid()
    try:
        child = os.fork()
    except OSError:
        os._exit(CANNOT_FORK)
    if child:
        _guard(child, grace_s)
    descendants.end_with_parent(warden)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _guard(child: int, grace_s: float) -> NoReturn:
    """Wait for the end of the child or for a signal. Then end all descendants and this process.

    The process ends with the exit code or the signal of the child.
    """
    for path in list(Path("/proc/self/fd").iterdir()):  # close the child's channel and streams
        with suppress(OSError):
            os.close(int(path.name))
    descendants.close_to_descendants()
    ended: int | None = None
    look_s = monotonic() + LOOK_EVERY_S
    while ended is None:
        signalled = signal.sigtimedwait(_AWAITED, max(0.0, look_s - monotonic()))
        ended = _reaped(child)
        if ended is not None:
            break
        # The child gets SIGINT itself.
        if signalled is not None and signalled.si_signo in _ENDING - {signal.SIGINT}:
            ended = _asked_to_end(child, grace_s)
            break
        if monotonic() >= look_s:  # also if daemons of the child end all the time
            if _fills_the_memory():
                ended = OVER_MEMORY << 8  # the wait status of a process that exits with this code
            look_s = monotonic() + LOOK_EVERY_S
    descendants.end()
    _end_as(signal.SIGKILL if ended is None else ended)


def _fills_the_memory() -> bool:
    """Return whether little memory is free and the child with its descendants uses much memory.

    A limit of the address space would not help, because CUDA reserves more address space than the
    machine has memory.
    """
    total = all_memory_bytes()
    if free_memory_bytes() >= total * MIN_FREE:
        return False
    return sum(map(descendants.resident_bytes, descendants.descendants())) > total * MAX_USED


def _asked_to_end(child: int, grace_s: float) -> int | None:
    """Send SIGTERM to the child, and return its wait status.

    Return None if the child has not ended within `grace_s`.
    """
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGTERM)
    deadline_s = monotonic() + grace_s
    ended = _reaped(child)
    while ended is None and (left_s := deadline_s - monotonic()) > 0:
        signal.sigtimedwait({signal.SIGCHLD}, left_s)
        ended = _reaped(child)
    return ended


def _reaped(child: int) -> int | None:
    """Wait for all processes that have ended, and return the wait status of the child.

    Return None if the child has not ended.

    The wait status is the signal, or 256 times the exit code.
    """
    ended = None
    with suppress(ChildProcessError):
        while (status := os.waitpid(-1, os.WNOHANG)) != (0, 0):
            if status[0] == child:
                ended = status[1]
    return ended


def _end_as(status: int) -> NoReturn:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with suppress(OSError):  # SIGKILL has no handler
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status))
