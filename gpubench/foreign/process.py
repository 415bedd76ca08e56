"""Runs a problem's code in a separate process, and checks the answers of that process.

A process that runs foreign code anyway, such as a measuring process, also runs the problem's code.
"""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from gpubench.errors import GpubenchError, UsageError, missing_module, with_place
from gpubench.foreign import bound, forms, on_host, tensors, values
from gpubench.foreign.compare import Comparison
from gpubench.foreign.statement import Facts, Program
from gpubench.plan.foreign_process import ForeignProcess, serve_requests
from gpubench.process.child import runs_foreign_code
from gpubench.process.descendants import close_to_descendants
from gpubench.rewording import reworded

ANSWER_S = 600.0
"""Time limit for an answer. A reference may take a long time on a CPU."""

MAX_REASON = 500

Results = tuple[memoryview, list[memoryview]]
Answer = TypeVar("Answer")


class Request(msgspec.Struct, frozen=True):
    """A request about a workload of a problem."""

    what: Literal["facts", "inputs", "results", "tensors", "load"]
    form: str
    path: str
    device: str
    number: int
    facts: Facts | None = None
    seed: int = 0
    content: memoryview = memoryview(b"")  # the bytes of the inputs
    solution: str = ""  # the solution to load, whose CUDA C++ is then compiled


def ask_for(
    request: Request,
    kind: Callable[..., Answer] | Any,
    process: ForeignProcess | None = None,
    home: Path | None = None,
    function: str = "",
) -> Any:
    """Return the answer to a request, from `process` or from the process of the problem (`keep`).

    The process may write into the cache of the folder `home`, by default the problem's folder, and
    there into the part of `function`. Raises UsageError, which names the file and the fault.
    """
    if runs_foreign_code():
        return _answer(request)
    content = msgspec.msgpack.encode(request)
    path = home / Path(request.path).name if home else Path(request.path)
    process = process or _kept.get(request.path, _process)
    answer = process.ask(content, path, ANSWER_S, is_alone=True, function=function)
    try:
        return msgspec.msgpack.decode(answer, type=kind)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{request.path}{reworded(error)}") from error


_process = ForeignProcess(__name__)

_kept: dict[str, ForeignProcess] = {}  # processes by the file of a problem


def keep(path: Path) -> ForeignProcess:
    """Return a process that answers all requests about a problem, until `end` is called."""
    return _kept.setdefault(str(path), ForeignProcess(__name__))


def end() -> None:
    """End the processes that `keep` started."""
    while _kept:
        _kept.popitem()[1].end()


def begin(path: str) -> None:
    """Start the process for a problem, so that it imports torch while other processes start."""
    _kept.get(path, _process).begin(Path(path))


def serve(descriptor_of_socket: int) -> None:
    """Answer requests about problems until the channel closes."""
    with suppress(ImportError):  # each request reports that torch is missing
        import torch  # noqa: F401 # the import takes seconds

    def answer(content: bytes) -> bytes:
        request = msgspec.msgpack.decode(content, type=Request)
        if request.device == "cpu":  # no solution may read inputs before its clock starts
            close_to_descendants()
        return msgspec.msgpack.encode(_answer(request))

    serve_requests(descriptor_of_socket, answer)


_programs: dict[tuple[str, str], Program] = {}


def program_of(form: str, path: str, device: str) -> Program:
    """Return the functions of a problem, whose code each process runs only once.

    The code may raise any exception.
    """
    key = form, path
    if key not in _programs:
        values.use_device(device)
        values.without_compiler()
        if device == "cpu":
            values.without_gpu()
        _programs[key] = forms.program(form, Path(path))
    return _programs[key]


def _answer(request: Request) -> Any:
    """Return the answer to a request. Raises UsageError, which names the file and the fault."""
    try:
        return _answered(request)
    except GpubenchError as error:
        raise UsageError(f"{request.path}: {error}"[:MAX_REASON]) from error
    except ModuleNotFoundError as error:
        raise UsageError(f"{request.path}: {missing_module(error)}") from error
    except Exception as error:  # a problem may raise anything
        raise UsageError(f"{request.path}: {with_place(error)}"[:MAX_REASON]) from error


def _is_wide(program: Program, facts: Facts, number: int, inputs: memoryview) -> bool:
    """Whether the reference's results in float64 agree with its results in its own types."""
    elements = bound.elements_of(facts)
    refer = bound.refer if elements is on_host else bound.refer_on_device
    native, wide = refer(program, facts, number, inputs)
    return Comparison(facts, elements).with_reference(native, wide).is_wide


def _answered(request: Request) -> Any:
    program = program_of(request.form, request.path, request.device)
    if request.what == "load":
        from gpubench.foreign import solutions  # imports modules for nvcc

        solutions.load(program, Path(request.solution), "")
        return memoryview(b"")
    if request.facts is None:
        workload = forms.read(request.form, Path(request.path)).workloads[request.number - 1]
        facts = tensors.examine(program, request.number, workload.tolerance)
        inputs = bound.fill(program, facts, request.number, seed=2)
        is_wide = _is_wide(program, facts, request.number, inputs)
        waits = bound.waits(program, facts, request.number, inputs)
        values.free_memory()
        return msgspec.structs.replace(facts, is_wide=is_wide, waits=waits)
    if request.what == "inputs":
        return bound.fill(program, request.facts, request.number, request.seed)
    refer = bound.refer_on_device if request.what == "tensors" else bound.refer
    return refer(program, request.facts, request.number, request.content)
