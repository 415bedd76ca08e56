"""The child process that measures: it may crash or hang, and the sweep goes on without it.

`serve` is the child; `gpubench.measure.worker.Worker` starts it and talks to it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from gpubench.backends import open_backend, passed_over
from gpubench.errors import GpubenchError
from gpubench.measure.executor import InProcess
from gpubench.model import Device, Measurement, Status, Timer

PR_SET_PDEATHSIG = 1
"""prctl(2): the signal this process gets when its parent dies."""


@dataclass(frozen=True, kw_only=True)
class Opened:
    """The child is ready."""

    device: Device
    notices: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Built:
    """So many kernels are built; more are to come."""

    count: int


@dataclass(frozen=True, kw_only=True)
class Done:
    """A call returned."""

    value: Any
    spent_s: dict[str, float]
    usable: bool = True
    """Whether the device can go on: after an illegal access it cannot, and the child ends."""


@dataclass(frozen=True, kw_only=True)
class Raised:
    """A call ended in an error for the user."""

    error: GpubenchError


def serve(descriptor: int, device: str, timer: str) -> None:
    """Measure what comes through the pipe until it closes."""
    _die_with_the_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, which ends us
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what kernels print is not our output
    with Connection(descriptor) as pipe:
        try:
            executor = InProcess(open_backend(device, Timer(timer)))
        except GpubenchError as error:
            pipe.send(Raised(error=error))
            return
        notices = (*passed_over(device), *executor.notices)
        pipe.send(Opened(device=executor.device, notices=notices))
        while True:
            try:
                name, arguments = pipe.recv()
            except (EOFError, OSError):  # the parent ended, or closed the pipe on an answer
                return
            answer = _call(executor, name, arguments, pipe)
            pipe.send(answer)
            if isinstance(answer, Done) and not answer.usable:
                return


def _call(executor: InProcess, name: str, arguments: tuple[Any, ...], pipe: Connection) -> object:
    if name == "compile":
        arguments = (*arguments, lambda count: pipe.send(Built(count=count)))
    try:
        value = getattr(executor, name)(*arguments)
    except GpubenchError as error:
        return Raised(error=error)
    failed = isinstance(value, Measurement) and value.status == Status.ERROR
    return Done(value=value, spent_s=dict(executor.spent_s), usable=not failed or executor.usable)


def _die_with_the_parent() -> None:
    """A parent that is killed takes us along, even out of a kernel that hangs (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    serve(int(sys.argv[1]), *sys.argv[2:])
