"""Runs the descriptions of users' kernels in a separate process, and checks the answers.

A description is code, which may end its process, use all memory, print, or never return. So this
process has a `Variant` whose functions send requests to the process of the descriptions. `load` and
`Described` run in this process, and `serve` runs in the other process. Answers are plain data
(msgspec).
"""

import os
import resource
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import msgspec

from gpubench.errors import UsageError
from gpubench.model import (
    LARGEST,
    CallVariant,
    Config,
    CudaVariant,
    HostVariant,
    Launch,
    Problem,
    Space,
    Variant,
)
from gpubench.model.config import ConfigParts
from gpubench.model.expression import Expression
from gpubench.model.launch import Gpu, PlainLaunch
from gpubench.plan import descriptor
from gpubench.plan.descriptor import FUNCTIONS, plain_fields
from gpubench.plan.foreign_process import ForeignProcess, ProcessEndedError, serve_requests
from gpubench.plan.python_file import described_by, recursion_kept
from gpubench.rewording import reworded
from gpubench.text import clean

ANSWER_S = 60.0
"""Time limit for an answer. For a process's first answer, the time includes the start and
imports."""

MAX_ANSWER_BYTES = 2**22
MAX_TEXT = 10_000  # maximum number of characters of a text in an answer
MAX_ANSWERS = 2**14  # maximum number of answers of a function that are kept
MAX_LAUNCH = 2**40  # largest number in a launch, such as the bytes of its workspace

_KINDS: dict[str, type[Variant]] = {
    kind.__name__: kind for kind in (HostVariant, CallVariant, CudaVariant)
}
_Text = Annotated[str, msgspec.Meta(max_length=MAX_TEXT)]
_Extent = Annotated[int, msgspec.Meta(ge=1, le=LARGEST)]
_SIGNATURES: dict[str, tuple[Any, Any]] = {
    "launch": (tuple[Config, Problem], Launch),
    "reuse": (tuple[Config], tuple[_Extent, _Extent]),
    "refuse": (tuple[Config | None, Problem], _Text | None),
    "specialize": (tuple[Launch, Config, Problem, Gpu], Launch),
    "auto_tiles": (tuple[Problem, int], tuple[_Text, ...]),
    "constraint": (tuple[Config], _Text | None),
}
"""Maps each function that this process may call to the types of its arguments and of its answer."""

_EXPRESSIONS: Any = Expression | tuple[Expression, ...]


class _Request(msgspec.Struct, frozen=True):
    """A request to load a description, or to call a function of the description."""

    path: str
    op: str
    function: str
    arguments: msgspec.Raw


class _Range(msgspec.Struct, frozen=True):
    """A range as plain data, because a range may be too long to be listed."""

    start: int
    stop: int
    step: int


class _Tiles(msgspec.Struct, frozen=True):
    """A `Space` as plain data, without its constraint, which is a function."""

    axes: dict[str, tuple[int | str, ...] | _Range]
    block: tuple[str, ...]
    thread: tuple[str, ...]
    default: tuple[str, ...]
    outside: str


class _Description(msgspec.Struct, frozen=True):
    """A variant as plain data, with its plain fields, its tiles, and the names of its functions."""

    kind: str
    plain: dict[str, Any]
    tiles: _Tiles | None
    functions: tuple[str, ...]  # names of fields with a function; `constraint` if the tiles have it


# ---- this process


@dataclass(frozen=True)
class Described:
    """Stands for a function of a description. A call sends a request to the other process.

    Functions that need the device's arrays, such as `build`, run in the process that calls them,
    which is a process that measures.
    """

    path: Path
    op: str
    name: str
    _answers: dict[bytes, Any] = field(default_factory=dict, repr=False, compare=False)
    """The answers so far, by encoded arguments. The process of the descriptions does not run while
    a point is measured, so each further request would start the process again."""

    def __call__(self, *arguments: Any) -> Any:
        """Return the function's answer. Raises UsageError with the file and the function."""
        if self.name not in _SIGNATURES:
            function = getattr(descriptor.load(self.path, self.op), self.name)
            return function(*arguments)
        content = msgspec.msgpack.encode(arguments, enc_hook=_plain)
        if content not in self._answers:
            answer = _asked(self.path, self.op, self.name, content)
            if len(self._answers) >= MAX_ANSWERS:
                self._answers.clear()
            self._answers[content] = answer
        return self._answers[content]


def load(path: Path, op: str) -> Variant:
    """Return the variant that a user's file describes.

    The file's code runs in the process of the descriptions. Raises UsageError, which names the file
    and the fault.
    """
    return descriptor.load(path, op, read=_read)


def _read(path: Path, op: str, as_of: tuple[int, ...]) -> Variant:
    answer = _described(path, op, as_of)
    if isinstance(answer, str):
        raise UsageError(answer)
    return answer


@cache
def _described(path: Path, op: str, _as_of: tuple[int, ...]) -> Variant | str:
    """Return the variant, or a message if its file ended the process.

    A file that ended the process is not run again.
    """
    try:
        answer = _asked(path, op)
    except ProcessEndedError as error:
        return str(error)
    try:
        return _made(answer, path, op)
    except (LookupError, TypeError, ValueError) as error:  # foreign code sent this answer
        return f"{path}: its process sent an invalid description{clean(reworded(error))}"


def _made(answer: _Description, path: Path, op: str) -> Variant:
    kind = _KINDS[answer.kind]
    types = {name: plain_fields(kind).get(name, _EXPRESSIONS) for name in answer.plain}
    fields = {name: msgspec.convert(answer.plain[name], types[name]) for name in types}
    functions: dict[str, Any] = {name: Described(path, op, name) for name in answer.functions}
    constraint = functions.pop("constraint", None)
    if answer.tiles:
        tiles = msgspec.structs.asdict(answer.tiles)
        for name, axis in answer.tiles.axes.items():
            if isinstance(axis, _Range):
                tiles["axes"][name] = range(axis.start, axis.stop, axis.step)
        fields["tiles"] = Space(**tiles, constraint=constraint)
    # The other process may send any text, and the name becomes a part of a folder's path.
    fields |= {"name": path.stem, "op": op}
    return kind(**fields, **functions, path=path)


def _asked(path: Path, op: str, function: str = "", arguments: bytes = b"\x90") -> Any:
    """Return the other process's answer about a description. Raises UsageError.

    `arguments` is an encoded array, by default an empty array.
    """
    where = f"{path}: VARIANT: {function}" if function else str(path)
    kind = _SIGNATURES[function][1] if function else _Description
    request = msgspec.msgpack.encode(_Request(str(path), op, function, msgspec.Raw(arguments)))
    try:
        answer = _process.ask(request, path, ANSWER_S, where=where, max_bytes=MAX_ANSWER_BYTES)
        value = msgspec.msgpack.decode(answer, type=kind)
        for launch in value.sequence if isinstance(value, Launch) else ():
            _check(launch)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where}{reworded(error)}") from error
    return value


def _check(launch: Launch) -> None:
    """Raise ValueError if a number of a launch is out of range. A grid may have 0 blocks."""
    numbers = [*launch.grid, *launch.block, *launch.cluster, launch.shared_bytes]
    if not all(0 <= number <= MAX_LAUNCH for number in (*numbers, launch.workspace_bytes)):
        raise ValueError(f"the numbers of a launch must be from 0 to {MAX_LAUNCH}")


_process = ForeignProcess(__name__)
end, end_between_requests = _process.end, _process.end_between_requests


# ---- the process of the descriptions


def serve(descriptor_of_socket: int) -> None:
    """Answer requests about descriptions until the channel closes."""
    half = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    with suppress(ValueError, OSError):  # a system without this limit, or with a lower limit
        resource.setrlimit(resource.RLIMIT_DATA, (half, half))
    serve_requests(descriptor_of_socket, _answer)


def _answer(content: bytes) -> bytes:
    """Return the answer to a request. Raises UsageError, which names the file and the line."""
    request = msgspec.msgpack.decode(content, type=_Request)
    name, path = request.function, Path(request.path)
    try:
        with recursion_kept():
            variant = descriptor.load(path, request.op)
            answer = _called(variant, name, request.arguments) if name else _description(variant)
            return msgspec.msgpack.encode(answer, enc_hook=_plain)
    except UsageError as error:
        raise UsageError(str(error)[:MAX_TEXT]) from error
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"{path}: VARIANT: {name}: {error}") from error
    except BaseException as error:  # a description may raise anything
        raise UsageError(f"{path}: {type(error).__name__}") from error


def _called(variant: Variant, name: str, content: msgspec.Raw) -> object:
    owner = variant.tiles if name == "constraint" else variant
    function: Callable[..., object] = getattr(owner, name)
    arguments = msgspec.msgpack.decode(content, type=_SIGNATURES[name][0], dec_hook=_config)
    with described_by(variant.path):
        return function(*arguments)


def _description(variant: Variant) -> dict[str, Any]:
    """Return a variant as plain data with the fields of `_Description`."""
    kind = next(kind for kind in _KINDS.values() if isinstance(variant, kind))
    names = [*plain_fields(kind), *({"grid", "block", "shared_bytes"} & vars(variant).keys())]
    functions = [
        name
        for name in FUNCTIONS
        if (function := vars(variant).get(name)) is not getattr(kind, name, None)
        and not isinstance(function, PlainLaunch)
    ]
    if variant.tiles and variant.tiles.constraint:
        functions.append("constraint")
    return {
        "kind": kind.__name__,
        "plain": {name: getattr(variant, name) for name in names},
        "tiles": variant.tiles and replace(variant.tiles, constraint=None),
        "functions": functions,
    }


# ---- both


def _plain(value: object) -> object:
    """Convert a configuration, a range or another library's whole number to plain data."""
    if isinstance(value, Config):
        return value.parts
    if isinstance(value, range):
        return _Range(value.start, value.stop, value.step)
    if hasattr(value, "__index__"):  # a NumPy integer
        return value.__index__()
    raise TypeError(f"a description cannot use a {type(value).__name__}")


def _config(_kind: type, value: Any) -> Config:
    """Return the configuration that plain data describes."""
    return Config(*msgspec.convert(value, ConfigParts))
