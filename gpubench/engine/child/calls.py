"""Encodes calls of a child process's methods, and the results of these calls, as bytes.

The parent names a method of an object in the child, such as `Runner.measure`. Arguments and results
are plain data (msgspec). The receiver checks arguments and results against the types in the
method's signature. A variant has functions, which cannot be sent, so the path of its file is sent.
A kernel can change anything in the child, so the parent never loads Python objects that the child
made.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from inspect import signature
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
from msgspec.structs import asdict

from gpubench.model import OPERATIONS, Config, Device, Measurement, Point, Problem, Status
from gpubench.model.config import ConfigParts
from gpubench.plan.descriptor import load
from gpubench.plan.operations import add_operation


def _struct_of(kind: type[Any], **replaced: Any) -> type[msgspec.Struct]:
    """Return a class of messages with the fields of a dataclass.

    `replaced` has the types of the fields that are sent in another type, and None for the fields
    that are left out.
    """
    types = get_type_hints(kind) | replaced
    return msgspec.defstruct(f"{kind.__name__}Message", [x for x in types.items() if x[1]])


_POINT = _struct_of(Point, variant=tuple[str, str], tile=ConfigParts | None)
_MEASUREMENT = _struct_of(Measurement, point=None)

_SENT: dict[Any, Any] = {
    Point: _POINT,
    Sequence[Point]: tuple[_POINT, ...],  # type: ignore[valid-type] # a type made at run time
    Measurement: _MEASUREMENT,
    Measurement | None: _MEASUREMENT | None,
}
"""Maps each type that contains a variant to the type of the message that is sent in its place."""


class Opened(msgspec.Struct, frozen=True):
    """The device that a child opened, and the child's notices for the user."""

    device: Device
    notices: tuple[str, ...]


class Call(msgspec.Struct, frozen=True):
    """Message by which the parent calls a method of the child."""

    method: str
    arguments: msgspec.Raw
    operation: str
    """Path of the file that describes the problem's operation. The path is empty for an operation
    of gpubench itself, and for a call without a problem."""


class Done(msgspec.Struct, frozen=True):
    """The value that a method returned, and the state of the child."""

    result: msgspec.Raw
    spent_s: Mapping[str, float]
    usable: bool
    """Whether the device still works. An illegal memory access makes the device unusable, and the
    parent then ends the child."""


_signature_of = cache(signature)


def bound(method: Callable[..., Any], *arguments: Any, **named: Any) -> dict[str, Any]:
    """Return the arguments of a call, each under the name of its parameter."""
    _, *by_name = _signature_of(method).bind(None, *arguments, **named).arguments.items()
    return dict(by_name)


def encode_call(method: Callable[..., Any], arguments: Mapping[str, Any]) -> bytes:
    """Encode a call of a method as bytes. `decode_arguments` reads the arguments in the child."""
    sent = {name: _plain(value) for name, value in arguments.items()}
    problem = arguments.get("problem")
    is_users = isinstance(problem, Problem) and not OPERATIONS.is_ours(problem.op)
    operation = str(OPERATIONS.files[problem.op]) if problem and is_users else ""
    return encode(Call(method.__qualname__, msgspec.Raw(encode(sent)), operation))


def decode_arguments(method: Callable[..., Any], call: Call) -> dict[str, Any]:
    """Decode the arguments of a call in the child, and return them by name.

    Raises an error if a file that describes the operation or a variant is invalid.
    """
    if call.operation:
        add_operation(Path(call.operation))
    values: dict[str, Any] = {}
    message = msgspec.msgpack.decode(call.arguments, type=_arguments_of(method))
    for name in message.__struct_fields__:  # in order: a measurement takes its point from `values`
        if (value := getattr(message, name)) is not msgspec.UNSET:
            values[name] = _made(value, values)
    return values


def encode(value: object) -> bytes:
    """Encode a message, or the result of a method, as bytes."""
    return msgspec.msgpack.encode(_plain(value))


def decode_result(
    method: Callable[..., Any], arguments: Mapping[str, Any], content: msgspec.Raw
) -> Any:
    """Decode a method's result in the parent. Raises ValueError for an invalid result."""
    result = msgspec.msgpack.decode(content, type=_types_of(method)["return"])
    value = _made(result, arguments)
    if isinstance(value, Measurement) and value.status == Status.OK and value.series is None:
        raise ValueError("the status of the point is ok, but the point has no times")
    return value


@cache
def _arguments_of(method: Callable[..., Any]) -> type[msgspec.Struct]:
    """Return the class of a message with a method's arguments. Each argument may be left out."""
    types = _types_of(method)
    return msgspec.defstruct(
        "Arguments",
        [
            (name, types[name] | msgspec.UnsetType, msgspec.UNSET)
            for name in _signature_of(method).parameters
            if name in types
        ],
        forbid_unknown_fields=True,
    )


@cache
def _types_of(method: Callable[..., Any]) -> dict[str, Any]:
    """Return the types in which a method's arguments and its result are sent, by name."""
    return {name: _SENT.get(kind, kind) for name, kind in get_type_hints(method).items()}


def _plain(value: Any) -> Any:
    """Return an argument or a result as plain data, in the form in which it is sent."""
    match value:
        case Point(variant=variant, tile=tile):
            parts = None if tile is None else tile.parts
            return vars(value) | {"variant": (str(variant.path), variant.op), "tile": parts}
        case Measurement():
            return {name: getattr(value, name) for name in _MEASUREMENT.__struct_fields__}
        case tuple() | list():
            return tuple(map(_plain, value))
    return value


def _made(message: Any, arguments: Mapping[str, Any]) -> Any:
    """Return the argument or the result that a message describes.

    A measurement is sent without its point, which is in the `arguments` of the call.
    """
    if isinstance(message, _POINT):
        values = asdict(message)
        path, op = values.pop("variant")
        parts = values.pop("tile")
        tile = None if parts is None else Config(*parts)
        return Point(variant=load(Path(path), op), tile=tile, **values)
    if isinstance(message, _MEASUREMENT):
        return Measurement(point=arguments["point"], **asdict(message))
    return (
        tuple(_made(each, arguments) for each in message) if isinstance(message, tuple) else message
    )
