"""Runs a problem's code in a process of its own, and checks what it answers.

In a process that runs foreign code already, as those that measure, it runs there.
"""

import atexit
import os
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any, Literal, TypeVar

import msgspec

from gpubench.cache import environment_of_foreign
from gpubench.errors import ChildLostError, GpubenchError, UsageError, missing_module, with_place
from gpubench.foreign import bound, forms, tensors, values
from gpubench.foreign.compare import Comparison
from gpubench.foreign.statement import Facts, Program
from gpubench.process.child import Child, open_channel, runs_foreign_code, start
from gpubench.process.requests import answer_requests, ask

ANSWER_S = 600.0
"""Time limit of an answer. A reference on a CPU may take long."""

MAX_REASON = 500

Results = tuple[bytes, list[bytes]]
Answer = TypeVar("Answer")


class Request(msgspec.Struct, frozen=True):
    """What is asked about a workload."""

    what: Literal["facts", "inputs", "results"]
    form: str
    path: str
    device: str
    number: int
    facts: Facts | None = None
    seed: int = 0
    content: bytes = b""  # of the inputs


def ask_for(request: Request, kind: Callable[..., Answer] | Any) -> Any:
    """Return the answer to a request. Raises UsageError with the file and what is wrong."""
    content = msgspec.msgpack.encode(request)
    answer = _answer(content) if runs_foreign_code() else _process.ask(content, request)
    try:
        return msgspec.msgpack.decode(answer, type=kind)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{request.path}: {error}") from error


class _Process:
    """The process of one problem. It is started when it is needed."""

    def __init__(self) -> None:
        self._child: Child | None = None
        self._path = ""
        self._lock = Lock()

    def ask(self, content: bytes, request: Request) -> bytes:
        with self._lock:
            path = Path(request.path)
            if self._child is None or self._child.has_ended or self._path != request.path:
                self.end()
                environment, folder = environment_of_foreign(path.parent)
                name = path.parent.name
                self._child = start(
                    __name__, "serve", speaker=name, environment=environment, folder=folder
                )
                self._path = request.path
            try:
                return ask(self._child, content, [ANSWER_S])
            except ChildLostError as lost:
                self.end()
                raise UsageError(f"{request.path}: its process {lost.why}") from lost
            except KeyboardInterrupt:
                self.end()
                raise

    def end(self) -> None:
        """End the process."""
        child, self._child = self._child, None
        if child:
            child.kill()


_process = _Process()
end = atexit.register(_process.end)


# ---- the process of a problem


def serve(descriptor_of_socket: int) -> None:
    """Answer requests until the channel closes."""
    channel = open_channel(descriptor_of_socket)
    try:
        answer_requests(channel, lambda content, _report: _answer(content))
    finally:
        os._exit(1)


_programs: dict[tuple[str, str], Program] = {}


def program_of(form: str, path: str, device: str) -> Program:
    """Return the code of a problem, which runs once in a process. It may raise anything."""
    key = form, path
    if key not in _programs:
        values.use_device(device)
        if device == "cpu":
            values.without_gpu()
        _programs[key] = forms.program(form, Path(path))
    return _programs[key]


def _answer(content: bytes) -> bytes:
    """Return the answer to a request. Raises UsageError with the file and what is wrong."""
    request = msgspec.msgpack.decode(content, type=Request)
    try:
        return msgspec.msgpack.encode(_answered(request))
    except GpubenchError as error:
        raise UsageError(f"{request.path}: {error}"[:MAX_REASON]) from error
    except ModuleNotFoundError as error:
        raise UsageError(f"{request.path}: {missing_module(error)}") from error
    except Exception as error:  # a problem may raise anything
        raise UsageError(f"{request.path}: {with_place(error)}"[:MAX_REASON]) from error


def _answered(request: Request) -> Facts | bytes | Results:
    program = program_of(request.form, request.path, request.device)
    if request.facts is None:
        facts = tensors.examine(program, request.number)
        inputs = bound.fill(program, facts, request.number, seed=2)
        results = bound.refer(program, facts, request.number, inputs)
        is_wide = Comparison(facts).with_reference(*results).is_wide
        return msgspec.structs.replace(facts, is_wide=is_wide)
    if request.what == "inputs":
        return bound.fill(program, request.facts, request.number, request.seed)
    return bound.refer(program, request.facts, request.number, request.content)
