"""The child's side of the wall: it answers requests with a `Runner`, one after the other."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
from contextlib import suppress
from typing import Any

import msgspec

from gpubench.backends import backends, open_backend, passed_over
from gpubench.engine.child.channel import Channel
from gpubench.engine.child.requests import (
    Answer,
    Built,
    Compile,
    Done,
    Open,
    Opened,
    Raised,
    Request,
    decode_request,
)
from gpubench.engine.runner import Runner
from gpubench.errors import ChildLostError, GpubenchError, with_place
from gpubench.model import Measurement, Status, Timer
from gpubench.results.output import guard_streams

PR_SET_PDEATHSIG = 1
"""prctl(2): the signal that this process gets when its parent dies."""


def serve(descriptor: int, backend: str) -> None:
    """Answer requests until the channel closes. First import what `backend` needs, if it is named.

    The first request opens the device.
    """
    _end_with_the_parent(descriptor)
    guard_streams()
    os.dup2(2, 1)  # what kernels print is not our output
    os.set_inheritable(descriptor, False)  # programs that a kernel starts do not keep it open,
    channel = Channel(socket.socket(fileno=descriptor))
    os.register_at_fork(after_in_child=channel.close)  # nor do processes that a kernel forks
    pid = os.getpid()
    if backend and (load := backends()[backend].load):
        load()
    runner: Runner | None = None

    def send(token: int, body: Built | Done | Raised) -> None:
        if os.getpid() != pid:  # a kernel forked, and its copy returned to here
            os._exit(0)
        with suppress(ConnectionError):  # the parent was killed; the next request ends this process
            channel.send(msgspec.msgpack.encode(Answer(pid, token, body)))

    def answer(token: int, request: Request[Any]) -> Done:
        nonlocal runner
        if isinstance(request, Open):
            runner = Runner(open_backend(request.device, Timer(request.timer)))
            notices = (*passed_over(request.device), *runner.notices)
            return Done(value=request.encode(Opened(runner.device, notices)), spent_s={})
        if runner is None:
            raise ChildLostError("has no device yet")
        if isinstance(request, Compile):
            runner.compile(request.points, lambda built: send(token, Built(built)))
            return _done(runner, request, None)
        return _done(runner, request, request.answer(runner))

    while True:
        try:
            token, request = decode_request(channel.receive())
        except (EOFError, ConnectionError):  # the parent ended, or closed the channel
            return
        body: Built | Done | Raised
        try:
            body = answer(token, request)
        except GpubenchError as error:
            body = Raised.of(error)
        except Exception as error:  # unexpected
            body = Raised.of(ChildLostError(f"failed: {with_place(error)}"))
        send(token, body)


def _done(runner: Runner, request: Request[Any], value: Any) -> Done:
    failed = isinstance(value, Measurement) and value.status == Status.ERROR
    usable = not (failed or request.may_break_device) or runner.usable
    return Done(value=request.encode(value), spent_s=dict(runner.spent_s), usable=usable)


def _end_with_the_parent(descriptor: int) -> None:
    """Let this process end with its parent, even if a kernel hangs (Linux).

    The processes that kernels started end too. The system signals the parent's end to a watcher,
    which kills the group.
    """
    if sys.platform != "linux":
        return
    prctl, measuring_pid = ctypes.CDLL(None).prctl, os.getpid()
    if os.fork() == 0:
        os.close(descriptor)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() == measuring_pid:
            signal.sigwait({signal.SIGTERM})
        os.killpg(measuring_pid, signal.SIGKILL)
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
