"""Reads a TOML file from any author, decodes its tables, and refuses paths outside its folder."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from gpubench.errors import UsageError
from gpubench.rewording import reworded
from gpubench.text import did_you_mean, shown

MAX_BYTES = 2**20  # maximum size of a file; a configuration has a page or two
_MAX_DOTS = 200  # maximum number of dots in a key: the time of `tomllib` grows with its square
_MAX_MESSAGE = 200  # maximum number of characters of a message from `tomllib` or msgspec
_MAX_DEPTH = 20  # maximum depth of nested tables and lists
_LARGEST = 2**63 - 1  # TOML's integers have 64 bits; Python refuses to print much longer integers

Kind = TypeVar("Kind")


def read_toml(path: Path, flag: str = "") -> dict[str, Any]:
    """Return the table in a TOML file.

    Raise UsageError for an invalid file. The message begins with `flag`.
    """
    at = f"{flag}: " if flag else ""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{at}cannot read {path}: {error.strerror}") from error
    if len(content) > MAX_BYTES:
        raise UsageError(f"{at}{path} has more than {MAX_BYTES:,} bytes")
    try:
        text = content.decode("utf-8-sig")  # Windows may write a byte order mark
        # Count the dots before the value, or all dots of a table's heading.
        if any(line.partition("=")[0].count(".") > _MAX_DOTS for line in text.splitlines()):
            raise UsageError(f"{at}{path}: a key has more than {_MAX_DOTS} parts")
        values = tomllib.loads(text)
    except RecursionError as error:
        raise UsageError(f"{at}{path} is nested too deeply") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{at}{path} is not text in UTF-8") from error
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
    `kernels` must lie in the configuration's directory or below, and `output` and `samples` below
    the current directory. Raises UsageError for a path that leads out of its directory.
    """
    paths = dict(values)
    for name, base in (("kernels", path.parent), ("output", Path()), ("samples", Path())):
        if not isinstance(text := paths.get(name), str):
            continue
        if not lies_below(text, base) and "\0" not in text:  # NUL is refused as in every option
            raise UsageError(
                f"--config: {path}: {name} = '{shown(text)}' leads out of {base.resolve()}; "
                f"give such a path on the command line: --{name}"
            )
        paths[name] = str(base / text) if text else text
    return paths


@contextmanager
def named_in_errors(path: Path) -> Iterator[None]:
    """Add the path of a configuration to each UsageError of a `with` block."""
    try:
        yield
    except UsageError as error:
        raise UsageError(f"--config: {path}: {error}") from error


def lies_below(text: str, base: Path = Path()) -> bool:
    """Whether a path lies below a directory after all links are followed."""
    try:
        path = (base / text).resolve()
        loops = any(part.is_symlink() for part in (path, *path.parents))  # no error in Python 3.13
        return not loops and path.is_relative_to(base.resolve())
    except (OSError, ValueError, RuntimeError):  # not a path, or a loop of links before Python 3.13
        return False


def decode(values: object, kind: type[Kind], where: str, *, strict: bool = True) -> Kind:
    """Convert values to an object of a msgspec type. Unless `strict`, a number may be a text.

    Raise UsageError with a message of one line. The message consists of `where`, the place, the
    mistake, and the nearest valid name for a misspelled name.
    """
    try:
        return msgspec.convert(values, kind, strict=strict)
    except msgspec.ValidationError as error:
        message = reworded(error)
        word = re.search(r"unknown (?:key|value) '(\w{1,60})'$", message)
        hint = did_you_mean(word[1], _names(msgspec.json.schema(kind))) if word else ""
        raise UsageError(f"{where}{message[:_MAX_MESSAGE]}{hint and f'; {hint}'}") from error


def _names(schema: object) -> Iterator[str]:
    """Yield the keys and the choices of all tables of a JSON schema."""
    for name, inner in schema.items() if isinstance(schema, dict) else ():
        if name in {"properties", "enum"}:
            yield from inner
        yield from _names(inner)
