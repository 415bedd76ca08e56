"""What the parent requests of a child that measures, what the child does then, and its answer.

A request is a dataclass. Its method `answer` runs in the child. Requests and answers are plain
data (msgspec), which is checked where it is read. A variant, which has functions, is sent as the
path of its file. A kernel can change anything in the child, so the parent reads no object that the
child made.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, Union, get_type_hints

import msgspec
from msgspec.structs import asdict

from gpubench.errors import (
    ChildLostError,
    DeviceBusyError,
    DeviceUnavailableError,
    GpubenchError,
    UsageError,
)
from gpubench.model import Config, Device, Measurement, PairedTimes, Parts, Point, Status, Timing
from gpubench.model.config import ConfigParts
from gpubench.plan.descriptor import load

if TYPE_CHECKING:
    from gpubench.engine.runner import Runner

A = TypeVar("A")

TOKEN_BYTES = 8


def _struct_of(kind: type[Any], *left_out: str) -> type[msgspec.Struct]:
    """Return a message with the fields of a dataclass, without those that hold a variant."""
    hints = get_type_hints(kind)
    names = [field.name for field in fields(kind) if field.name not in left_out]
    return msgspec.defstruct(f"{kind.__name__}Message", [(name, hints[name]) for name in names])


_CONDITIONS = _struct_of(Point, "variant", "tile")
_POINT = msgspec.defstruct(
    "PointMessage",
    [("path", str), ("op", str), ("tile", ConfigParts | None), ("conditions", _CONDITIONS)],
)
_MEASUREMENT = _struct_of(Measurement, "point")
_PAIRED_TIMES = _struct_of(PairedTimes, "point", "library")


def _message(struct: type[msgspec.Struct], value: Any) -> msgspec.Struct:
    return struct(**{name: getattr(value, name) for name in struct.__struct_fields__})


class Request(Generic[A]):
    """A request whose answer is an `A`."""

    kind: ClassVar[Any] = None
    """The type by which the answer is decoded."""

    may_break_device: ClassVar[bool] = False
    """Whether the device may not work after this request, whatever the answer says."""

    def answer(self, runner: Runner) -> A:
        """Do what is requested, in the child."""
        raise NotImplementedError

    def encode(self, value: A) -> bytes:
        """Return an answer as bytes, in the child."""
        return msgspec.msgpack.encode(value)

    def decode(self, content: bytes) -> A:
        """Return the answer, in the parent. Raises ValueError for bytes that are no answer."""
        value: A = msgspec.msgpack.decode(content, type=self.kind)
        return value


@dataclass(frozen=True, kw_only=True)
class Begin(Request[None]):
    """Forget the previous job, and take the policy of the next job."""

    timing: Timing
    seed: int

    def answer(self, runner: Runner) -> None:
        """Begin the job."""
        runner.begin(self.timing, self.seed)


@dataclass(frozen=True, kw_only=True)
class Compile(Request[None]):
    """Compile what points need. Answers with the number of compiled kernels come before the end."""

    points: tuple[Point, ...]


@dataclass(frozen=True, kw_only=True)
class WarmUp(Request[None]):
    """Bring the device to the clock that it keeps under load."""

    def answer(self, runner: Runner) -> None:
        """Warm up."""
        runner.warm_up()


@dataclass(frozen=True, kw_only=True)
class MeasureCeilings(Request[dict[str, float]]):
    """Measure the device's highest rates."""

    dtypes: tuple[str, ...]
    kept: bool
    kind = dict[str, float]

    def answer(self, runner: Runner) -> dict[str, float]:
        """Return the rates by name."""
        return runner.ceilings(self.dtypes, self.kept)


@dataclass(frozen=True, kw_only=True)
class MeasureParts(Request[Parts]):
    """Measure fixed work on each part of the device."""

    kind = Parts

    def answer(self, runner: Runner) -> Parts:
        """Return the times."""
        return runner.parts()


@dataclass(frozen=True, kw_only=True)
class Measure(Request[Measurement]):
    """Measure a point once."""

    point: Point
    wall_limit_s: float | None
    earlier: Measurement | None
    seed: int | None
    """Seed of the operands and of the probes. None: the job's."""

    def answer(self, runner: Runner) -> Measurement:
        """Return the measurement."""
        return runner.measure(self.point, self.wall_limit_s, self.earlier, self.seed)

    def encode(self, value: Measurement) -> bytes:
        """Return the measurement without its point."""
        return msgspec.msgpack.encode(_message(_MEASUREMENT, value))

    def decode(self, content: bytes) -> Measurement:
        """Return the measurement of the point that was requested."""
        message = msgspec.msgpack.decode(content, type=_MEASUREMENT)
        measurement = Measurement(point=self.point, **asdict(message))
        if measurement.status == Status.OK and measurement.series is None:
            raise ValueError("the point is ok and has no times")
        return measurement


@dataclass(frozen=True, kw_only=True)
class MeasurePairs(Request[PairedTimes | str]):
    """Measure a kernel and a library in turns. The answer is a text if that fails."""

    point: Point
    library: Point

    def answer(self, runner: Runner) -> PairedTimes | str:
        """Return the times, or why there are none."""
        return runner.measure_pairs(self.point, self.library)

    def encode(self, value: PairedTimes | str) -> bytes:
        """Return the times without their points."""
        is_text = isinstance(value, str)
        return msgspec.msgpack.encode(value if is_text else _message(_PAIRED_TIMES, value))

    def decode(self, content: bytes) -> PairedTimes | str:
        """Return the times of the two points that were requested."""
        value: Any = msgspec.msgpack.decode(content, type=_PAIRED_TIMES | str)
        if isinstance(value, str):
            return value
        return PairedTimes(point=self.point, library=self.library, **asdict(value))


@dataclass(frozen=True, kw_only=True)
class ProbeOutputs(Request[list[bytes]]):
    """Launch on the operands of a point's exact probes."""

    point: Point
    kind = list[bytes]

    def answer(self, runner: Runner) -> list[bytes]:
        """Return the results, by rows."""
        return [output.tobytes() for output in runner.examiner.probe_outputs(self.point)]


@dataclass(frozen=True, kw_only=True)
class Repeat(Request[float | None]):
    """Launch a number of times, while the parent looks at its own clock."""

    point: Point
    launches: int
    kind = float | None

    def answer(self, runner: Runner) -> float | None:
        """Launch and wait. Return microseconds per launch, where the child's clock has them."""
        return runner.examiner.repeat(self.point, self.launches)


@dataclass(frozen=True, kw_only=True)
class PutNewOperands(Request[bool]):
    """Prepare launches, each on an operand that no launch has seen before."""

    point: Point
    launches: int
    sets: int
    """Number of operands that are new. Launches use them in turns."""

    position: int
    """Which operand is new: 0 for A, 1 for B."""

    seed: int | None
    """Seed of the operands. None: the launches wait in the queue of a GPU for their seed."""

    kind = bool

    def answer(self, runner: Runner) -> bool:
        """Return whether the launches can begin."""
        return runner.examiner.put_new_operands(
            self.point, self.launches, self.seed, self.position, self.sets
        )


@dataclass(frozen=True, kw_only=True)
class LaunchOnNewOperands(Request[None]):
    """Begin the launches of `PutNewOperands`, while the parent looks at its own clock."""

    seed: int

    def answer(self, runner: Runner) -> None:
        """Launch, and wait."""
        runner.examiner.launch_on_new_operands(self.seed)


@dataclass(frozen=True, kw_only=True)
class ReadResults(Request[bytes]):
    """Send parts of the results of `LaunchOnNewOperands`, chosen by the parent afterwards."""

    copies: tuple[int, ...]
    rows: tuple[int, ...]
    """A row of each of the copies; a column, if B is new. Empty: the first one's whole result."""

    kind = bytes

    def answer(self, runner: Runner) -> bytes:
        """Return the rows."""
        return runner.examiner.read_results(self.copies, self.rows)


@dataclass(frozen=True, kw_only=True)
class RunAtUnusualSize(Request[str]):
    """Launch at prime extents. The answer is a note; it is empty if the result is right."""

    point: Point
    kind = str
    may_break_device = True

    def answer(self, runner: Runner) -> str:
        """Return the note."""
        return runner.examiner.at_unusual_size(self.point)


class Opened(msgspec.Struct, frozen=True):
    """What a child opened."""

    device: Device
    notices: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Open(Request[Opened]):
    """Open the device. This is a child's first request, and nothing else opens a device."""

    device: str
    timer: str
    kind = Opened


# ---- the envelopes


class Built(msgspec.Struct, frozen=True, tag=True):
    """The number of kernels compiled so far. The request is not finished."""

    count: int


class Done(msgspec.Struct, frozen=True, tag=True):
    """A request is finished."""

    value: bytes
    spent_s: dict[str, float]
    usable: bool = True
    """Whether the device still works. After an illegal access it does not, and the child ends."""


_ERRORS: dict[str, type[GpubenchError]] = {
    kind.__name__: kind
    for kind in (UsageError, DeviceUnavailableError, DeviceBusyError, ChildLostError)
}


class Raised(msgspec.Struct, frozen=True, tag=True):
    """A request failed with an error for the user; ChildLostError if it is unexpected."""

    error_type: str
    message: str

    @classmethod
    def of(cls, error: GpubenchError) -> Raised:
        """Return the message of an error."""
        return cls(type(error).__name__, str(error.args[0]))

    @property
    def error(self) -> GpubenchError:
        """The error."""
        return _ERRORS.get(self.error_type, ChildLostError)(self.message)


class Answer(msgspec.Struct, frozen=True):
    """An answer, and who gives it.

    A kernel that forks would answer twice, so an answer has the id of its process. It repeats the
    token of its request, which nobody can guess who only has the descriptor of the channel.
    """

    pid: int
    token: int
    body: Built | Done | Raised


_FIELDS: dict[Any, Any] = {
    Point: _POINT,
    tuple[Point, ...]: tuple[_POINT, ...],  # type: ignore[valid-type] # a type that is made here
    Measurement | None: _MEASUREMENT | None,
}
"""Types of the fields of requests that hold a variant, and of their messages."""


@cache
def _messages() -> dict[str, tuple[type[Request[Any]], type[msgspec.Struct]]]:
    """Return each kind of request with its message, by name."""
    found = {}
    for kind in Request.__subclasses__():
        hints = get_type_hints(kind)
        names = [field.name for field in fields(kind)]  # type: ignore[arg-type] # a dataclass
        typed = [(name, _FIELDS.get(hints[name], hints[name])) for name in names]
        found[kind.__name__] = kind, msgspec.defstruct(kind.__name__, typed, tag=True)
    return found


def _sent(value: Any) -> Any:
    """Return a field of a request as it is sent."""
    if isinstance(value, Point):
        variant, tile = value.variant, value.tile
        parts = None if tile is None else tile.parts
        conditions = _message(_CONDITIONS, value)
        return _POINT(path=str(variant.path), op=variant.op, tile=parts, conditions=conditions)
    if isinstance(value, Measurement):
        return _message(_MEASUREMENT, value)
    return tuple(map(_sent, value)) if isinstance(value, tuple) else value


def _received(message: Any, point: Point | None) -> Any:
    """Return the field of a request; `point` is of a measurement. Raises UsageError."""
    if isinstance(message, _POINT):
        sent: Any = message
        tile = sent.tile and Config(*sent.tile)
        return Point(variant=load(Path(sent.path), sent.op), tile=tile, **asdict(sent.conditions))
    if isinstance(message, _MEASUREMENT) and point:
        return Measurement(point=point, **asdict(message))
    is_tuple = isinstance(message, tuple)
    return tuple(_received(each, point) for each in message) if is_tuple else message


def encode_request(token: int, request: Request[Any]) -> bytes:
    """Return a request for `token_of` and `decode_request`."""
    _, kind = _messages()[type(request).__name__]
    sent = {name: _sent(getattr(request, name)) for name in kind.__struct_fields__}
    return token.to_bytes(TOKEN_BYTES, "big") + msgspec.msgpack.encode(kind(**sent))


def token_of(content: bytes) -> int:
    """Return the token of a request, in the child."""
    return int.from_bytes(content[:TOKEN_BYTES], "big")


def decode_request(content: bytes) -> Request[Any]:
    """Return a request, in the child. Raises what the descriptions of its variants raise."""
    kinds: Any = Union[tuple(message for _, message in _messages().values())]  # noqa: UP007 # made at run time
    message = msgspec.msgpack.decode(content[TOKEN_BYTES:], type=kinds)
    kind, _ = _messages()[type(message).__name__]
    values: dict[str, Any] = {}
    for name in message.__struct_fields__:  # a point comes before its earlier measurement
        values[name] = _received(getattr(message, name), values.get("point"))
    return kind(**values)
