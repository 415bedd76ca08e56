"""The child process that measures: it may crash or hang, and the sweep goes on without it.

`serve` is the child; `gpubench.engine.worker.Worker` starts it and talks to it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import Any

from gpubench.backends import backends, open_backend, passed_over
from gpubench.engine.channel import Channel
from gpubench.engine.executor import InProcess
from gpubench.errors import ChildLostError, GpubenchError, with_place
from gpubench.model import Measurement, Status
from gpubench.results.output import guard_streams

PR_SET_PDEATHSIG = 1
"""prctl(2): the signal this process gets when its parent dies."""


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
    """A call ended in an error for the user; ChildLostError if nobody foresaw it."""

    error: GpubenchError


Answer = Built | Done | Raised


def serve(descriptor: int, backend: str) -> None:
    """Answer what comes through the channel until it closes; load a backend's modules before.

    The first request opens the backend, each later one calls a method of the executor. An answer
    has our process id and its request's number: a kernel that forks would answer twice.
    """
    _end_with_the_parent(descriptor)
    guard_streams()
    os.dup2(2, 1)  # what kernels print is not our output
    os.set_inheritable(descriptor, False)  # no program that a kernel starts keeps it open,
    channel = Channel(socket.socket(fileno=descriptor))
    os.register_at_fork(after_in_child=channel.close)  # and no process that it forks
    pid = os.getpid()
    if backend and (load := backends()[backend].load):
        load()
    executor: InProcess | None = None

    def send(number: int, answer: Answer) -> None:
        if os.getpid() != pid:  # forked in a kernel, and back where it was called
            os._exit(0)
        with suppress(ConnectionError):  # the parent was killed: the next request is our end
            channel.send((pid, number, answer))

    for number in count(1):
        answer: Answer
        try:
            name, arguments = channel.receive()
            if executor is None:
                executor = InProcess(open_backend(*arguments))
                notices = (*passed_over(arguments[0]), *executor.notices)
                answer = Done(value=(executor.device, notices), spent_s={})
            else:
                if name == "compile":
                    arguments += (lambda built, at=number: send(at, Built(count=built)),)
                answer = _call(executor, name, arguments)
        except (EOFError, ConnectionError):  # the parent has ended, or has done with us
            return
        except GpubenchError as error:
            answer = Raised(error=error)
        except Exception as error:  # what neither we nor a kernel's author foresaw
            answer = Raised(error=ChildLostError(f"failed: {with_place(error)}"))
        send(number, answer)


def _call(executor: InProcess, name: str, arguments: tuple[Any, ...]) -> Done:
    value = getattr(executor, name)(*arguments)
    failed = isinstance(value, Measurement) and value.status == Status.ERROR
    return Done(value=value, spent_s=dict(executor.spent_s), usable=not failed or executor.usable)


def _end_with_the_parent(descriptor: int) -> None:
    """A parent that is killed takes us along, even out of a kernel that hangs (Linux).

    What kernels started goes too: a watcher, which the system tells of our end, kills the group.
    """
    if sys.platform != "linux":
        return
    prctl, us = ctypes.CDLL(None).prctl, os.getpid()
    if os.fork() == 0:
        os.close(descriptor)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() == us:
            signal.sigwait({signal.SIGTERM})
        os.killpg(us, signal.SIGKILL)
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
