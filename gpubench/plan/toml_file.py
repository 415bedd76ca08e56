"""Reads a TOML file of any origin, decodes its tables, and keeps its paths from leading out."""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from gpubench.errors import UsageError
from gpubench.text import shown, unknown

MAX_BYTES = 2**20  # a configuration is a page or two
_MAX_DOTS = 200  # in a key: the time that `tomllib` takes grows with their square
_MAX_MESSAGE = 200  # characters of a message from `tomllib` or msgspec
_MAX_DEPTH = 20  # tables and lists within each other
_LARGEST = 2**63 - 1  # TOML's integers have 64 bits; Python refuses to print much longer ones

NOT_BLANK = r"\S"
"""Pattern of a text that is not blank."""

_WORDS = {
    "array": "list",
    "bool": "true or false",
    "float": "number",
    "int": "integer",
    "object": "table",
    "str": "text",
}
"""Names of types: msgspec's, and ours for users."""

_KEY = "key"  # the step of a path that leads to the keys of a table

Kind = TypeVar("Kind")


def read_toml(path: Path, flag: str = "") -> dict[str, Any]:
    """Return the file's table. Raise UsageError, which begins with `flag`, for an invalid file."""
    at = f"{flag}: " if flag else ""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{at}cannot read {path}: {error.strerror}") from error
    if len(content) > MAX_BYTES:
        raise UsageError(f"{at}{path} has more than {MAX_BYTES:,} bytes")
    try:
        text = content.decode()
        # Count the dots before the value, or all dots of a table's heading.
        if any(line.partition("=")[0].count(".") > _MAX_DOTS for line in text.splitlines()):
            raise UsageError(f"{at}{path}: a key has more than {_MAX_DOTS} parts")
        values = tomllib.loads(text)
    except RecursionError as error:
        raise UsageError(f"{at}{path} is nested too deeply") from error
    except ValueError as error:
        raise UsageError(f"{at}{path} is not TOML: {str(error)[:_MAX_MESSAGE]}") from error
    _require_usable(values, f"{at}{path}", _MAX_DEPTH)
    return values


def _require_usable(value: object, where: str, depth: int) -> None:
    if depth == 0:
        raise UsageError(f"{where} is nested too deeply")
    if isinstance(value, int) and abs(value) > _LARGEST:
        raise UsageError(f"{where}: an integer is beyond 64 bits")
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            _require_usable(inner, where, depth - 1)


def confined(path: Path, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration's options with paths relative to the current directory.

    A configuration may come from elsewhere, and the files that it names are run or written. So
    `kernels` must lie in its directory or below, and `output` and `samples` below the current
    directory. Raises UsageError for a path that leads out.
    """
    paths = dict(values)
    for name, base in (("kernels", path.parent), ("output", Path()), ("samples", Path())):
        if isinstance(paths.get(name), str):
            paths[name] = _confined(path, name, paths[name], base)
    return paths


def _confined(config: Path, name: str, text: str, base: Path) -> str:
    """Return a path of a configuration that lies below `base` after links are followed."""
    if not lies_below(text, base) and "\0" not in text:  # NUL is refused as in every option
        raise UsageError(
            f"--config: {config}: {name} = '{shown(text)}' leads out of {base.resolve()}; "
            f"give such a path on the command line: --{name}"
        )
    return str(base / text) if text else text


def lies_below(text: str, base: Path = Path()) -> bool:
    """Return whether a path lies below a directory after links are followed."""
    try:
        path = (base / text).resolve()
        loops = any(part.is_symlink() for part in (path, *path.parents))  # no error in Python 3.13
        return not loops and path.is_relative_to(base.resolve())
    except (OSError, ValueError, RuntimeError):  # not a path, or a loop of links before Python 3.13
        return False


def decode(values: object, kind: type[Kind], where: str) -> Kind:
    """Return the values as an object of a msgspec type.

    Raise UsageError in one line: `where`, the place within the values, and what is wrong there.
    """
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        raise UsageError(f"{where}: {_explained(str(error), kind)}") from error


def _explained(message: str, kind: type) -> str:
    """Turn msgspec's message into `series 1: rules 2: 'at' is missing`."""
    # The message may contain the file's words, so only a text of a path's form counts as the path.
    parts = re.fullmatch(r"(.*) - at (`key` in )?`\$([\w.\[\]]{0,200})`", message, re.DOTALL)
    what, in_key, path = parts.groups(default="") if parts else (message, "", "")
    place = path.replace("[...]", "").replace(".", ": ").removeprefix(": ")
    place = re.sub(r"\[(\d{1,9})\]", lambda index: f" {int(index[1]) + 1}", place)
    steps = re.findall(r"\w+|\[[\d.]+\]", path) + ([_KEY] if in_key else [])
    return (f"{place}: " if place else "") + _in_words(what, kind, steps)


def _in_words(what: str, kind: type, steps: list[str]) -> str:
    if missing := re.fullmatch(r"Object missing required field `(.*)`", what):
        return f"'{missing[1]}' is missing"
    names = _names(inspect.type_info(kind), steps)
    if field := re.fullmatch(r"Object contains unknown field `(.*)`", what, re.DOTALL):
        return unknown("key", field[1], (name for name in names if name != field[1]))
    if value := re.fullmatch(r"Invalid (?:enum )?value '(.*)'", what, re.DOTALL):
        return unknown("key" if steps[-1:] == [_KEY] else "value", value[1], names)
    what = re.sub(r"`([\w| ]+)`", lambda types: _type_in_words(types[1]), what)
    what = what.replace(f"matching regex {NOT_BLANK!r}", "that is not blank")
    return " ".join(what.replace("Expected", "expected", 1).split())[:_MAX_MESSAGE]


def _type_in_words(kind: str) -> str:
    """Name a type for users: `number or text` for `int | float | str | null`."""
    names = kind.split(" | ")
    left_out = {"null", "int"} if "float" in names else {"null"}
    return " or ".join(_WORDS.get(name, name) for name in names if name not in left_out)


def _names(kind: inspect.Type, steps: list[str]) -> list[str]:
    """Return the legal names at a place: the keys of a table, or the values of a choice.

    A step leads into a field, an item (`[3]`), a value (`[...]`) or the keys of a table.
    """
    if isinstance(kind, inspect.UnionType):
        names = [name for inner in kind.types for name in _names(inner, steps)]
        return list(dict.fromkeys(names))
    if not steps:
        if isinstance(kind, inspect.StructType):
            tag = [kind.tag_field] if kind.tag_field else []
            return tag + [field.encode_name for field in kind.fields]
        values = kind.values if isinstance(kind, inspect.LiteralType) else ()
        return list(map(str, kind.cls if isinstance(kind, inspect.EnumType) else values))
    step, *inner_steps = steps
    inner: inspect.Type | None = None
    if isinstance(kind, inspect.DictType):
        inner = kind.key_type if step == _KEY else kind.value_type
    elif isinstance(kind, inspect.ListType | inspect.VarTupleType):
        inner = kind.item_type
    elif isinstance(kind, inspect.StructType):
        if step == kind.tag_field:
            return [str(kind.tag)]
        inner = {field.encode_name: field.type for field in kind.fields}.get(step)
    return _names(inner, inner_steps) if inner else []
