"""The child's side of the wall: it answers requests with a `Runner`, one after the other."""

import os
from contextlib import suppress
from typing import Any

import msgspec

from gpubench.backends import backends, open_backend, passed_over
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
    token_of,
)
from gpubench.engine.runner import Runner
from gpubench.errors import ChildLostError, GpubenchError, UsageError, with_place
from gpubench.model import Measurement, Status, Timer
from gpubench.process.child import open_channel
from gpubench.results.output import guard_streams


def serve(descriptor: int, backend: str) -> None:
    """Answer requests until the channel closes. The first request opens the device.

    If `backend` is named, first import what it needs, and send an empty message.
    """
    guard_streams()
    channel = open_channel(descriptor)
    os.register_at_fork(after_in_child=channel.close)  # what a kernel forks does not keep it open
    pid = os.getpid()
    if backend:
        if load := backends()[backend].load:
            load()
        channel.send(b"")
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
            content = channel.receive()
        except (EOFError, ConnectionError):  # the parent ended, or closed the channel
            return
        token = token_of(content)
        body: Built | Done | Raised
        try:
            try:
                request = decode_request(content)
            except UsageError as error:  # a description changed since the parent read it
                raise ChildLostError(str(error)) from error
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
