"""Runs in a child process, and calls the methods that the parent requests."""

import os
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from mmap import mmap

import msgspec

from gpubench.backends import backends, open_backend, passed_over
from gpubench.cache import copy_compiled
from gpubench.engine.child.calls import Call, Done, Opened, decode_arguments, encode
from gpubench.engine.measure.empty_requests import EmptyRequests
from gpubench.engine.measure.examiner import Examiner
from gpubench.engine.measure.keeper import Keeper
from gpubench.engine.measure.runner import Runner
from gpubench.engine.measure.walled import Walled
from gpubench.errors import ChildLostError, UsageError
from gpubench.files import guard_streams
from gpubench.model import Measurement, Point, Status, Timer
from gpubench.process.channel import Channel
from gpubench.process.child import open_channel
from gpubench.process.requests import Report, answer_requests

MAX_FORKS = 256
"""Maximum number of forks in a child and in its forked copies together. Without this limit, a
kernel that forks in each call would fill the machine with processes: each copy continues with the
next call, and forks again."""


def serve(descriptor: int, backend: str, library: str) -> None:
    """Answer requests until the channel closes. The first request opens the device.

    If `backend` is not empty, first import the modules that this backend needs, and torch if
    `library` is `torch`. After these imports, send an empty message to the parent.
    """
    guard_streams()
    channel = open_channel(descriptor)
    copy_compiled()
    forks = memoryview(mmap(-1, 8)).cast("Q")  # forked copies share this counter
    # A process that a kernel forks must not keep the channel open.
    os.register_at_fork(before=partial(_count_fork, forks), after_in_child=channel.close)
    if backend:
        backends()[backend].load()
        if library == "torch":
            with suppress(ImportError):  # a function that needs torch reports this
                import torch  # noqa: F401 # importing takes seconds
        channel.send(b"")
    answer_requests(channel, Server(channel).answer)


def _count_fork(forks: memoryview) -> None:
    forks[0] += 1
    if forks[0] > MAX_FORKS:
        if forks[0] == MAX_FORKS + 1:
            os.write(2, f"a kernel forked {MAX_FORKS} times: its process ends\n".encode())
        os._exit(1)


class Server:
    """Calls the methods that the parent requests, on this object or on objects that it holds."""

    def __init__(self, channel: Channel) -> None:
        self._runner: Runner | None = None
        self._others: dict[str, object] = {}  # objects by the names of their classes
        self._channel = channel
        self._report: Report = lambda _steps: None

    def open(self, device: str, timer: Timer) -> Opened:
        """Open the device.

        The parent requests this method first, and no other method opens a device.
        """
        backend = open_backend(device, timer)
        self._runner = Runner(backend, on_ready=lambda: self._report(1))
        walled = Walled(backend, self._take_file)
        others = walled, Keeper(backend), EmptyRequests(backend)
        self._others = {type(each).__name__: each for each in others}
        notices = (*passed_over(device), *self._runner.notices)
        return Opened(self._runner.device, notices)

    def compile(self, points: Sequence[Point]) -> None:
        """Compile the points' kernels, and report the number of kernels compiled so far."""
        self._opened.compile(points, self._report)

    def _take_file(self) -> int:
        """Return the descriptor of a file that the parent sent with a request."""
        if not self._channel.descriptors:
            raise ChildLostError("got no file")
        return self._channel.descriptors.pop()

    @property
    def _opened(self) -> Runner:
        if self._runner is None:
            raise ChildLostError("has no device yet")
        return self._runner

    def answer(self, content: bytes, report: Report) -> bytes:
        """Call the method that a request names, and return the encoded result (`Done`)."""
        self._report = report
        call = msgspec.msgpack.decode(content, type=Call)
        owner, _, name = call.method.partition(".")
        target: object = self
        if owner == Examiner.__name__:
            target = self._opened.examiner  # the examiner of this job
        elif owner != Server.__name__:
            target = self._others.get(owner, self._opened)
        try:
            arguments = decode_arguments(getattr(type(target), name), call)
        except UsageError as error:  # a file changed since the parent read it
            raise ChildLostError(str(error)) from error
        result = getattr(target, name)(**arguments)
        # After a call that may break the device, check whether the device still works.
        may_break = call.method == Examiner.at_unusual_size.__qualname__ or (
            isinstance(result, Measurement) and result.status == Status.ERROR
        )
        usable = not may_break or self._opened.usable
        spent_s = dict(self._opened.spent_s)
        return encode(Done(msgspec.Raw(encode(result)), spent_s=spent_s, usable=usable))
