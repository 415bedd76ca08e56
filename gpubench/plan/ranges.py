"""Parses values on the command line, such as the lists `1..32` and `64..512:64`, or durations."""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from gpubench.errors import UsageError
from gpubench.model import DEFAULT_OP, LARGEST, OPERATIONS, Cache, Config, Scope, Size, State
from gpubench.model.config import NO_PARAMETERS
from gpubench.text import shown, unknown

MAX_ITEMS = 10_000
"""Maximum number of items of a list. A longer list is probably a mistake, and is refused early."""

_SPAN = re.compile(r"(\d+)\.\.(\d+)(?::(x?)(\d+))?", re.ASCII | re.IGNORECASE)
_NUMBER = re.compile(r"\d+", re.ASCII)
_SHAPE = re.compile(r"\d+(?:x\d+)+", re.ASCII | re.IGNORECASE)

Item = TypeVar("Item")


def parse_sizes(text: str, op: str = DEFAULT_OP, flag: str = "--sizes") -> tuple[Size, ...]:
    """Parse a text that lists sizes, and return the sizes for an operation.

    `1024` and the sizes of a span such as `64..512:64` have equal extents. `320x640x320` has the
    extents in the operation's order, such as M×N×K.
    """
    operation = OPERATIONS[op]
    count = len(operation.extents)
    example = "x".join(str(320 * (1 + place % 2)) for place in range(count))
    shape = f"{example} ({'x'.join(operation.extents)}), " if count > 1 else ""
    expects = f"a size of {op} is 1024, {shape}64..512:64 or 1..64:x2"

    def sizes(item: str) -> Iterator[Size]:
        numbers = item.lower().split("x")
        if _SHAPE.fullmatch(item) and len(numbers) == count:
            values = [_bounded(number, item, flag, expects) for number in numbers]
            yield operation.size_of(values)
        else:
            yield from (operation.size_of([n] * count) for n in _span(item, flag, expects))

    return _items(text, sizes, flag, expects)


def parse_integers(text: str, flag: str, expects: str) -> tuple[int, ...]:
    """Return the integers that a text lists. A message about a mistake ends with `expects`."""
    return _items(text, lambda item: _span(item, flag, expects), flag, expects)


def parse_tiles(text: str, flag: str = "--tiles") -> tuple[str, ...]:
    """Return the tiles in a text such as `16,128x128x8/8x8/s3` or `1..32`; `-` means no tile."""
    expects = "a tile is 16, 1..32, 1..64:x2, 128x128x8 or 128x128x8/8x8/s3"

    def tiles(item: str) -> Iterator[str]:
        text = item.lower()
        if ("x" in text or "/" in text or text == NO_PARAMETERS) and ".." not in text:
            try:
                yield str(Config.parse(text))
            except ValueError:
                raise UsageError(f"{flag}: '{shown(item)}' is not understood; {expects}") from None
        else:
            yield from map(str, _span(item, flag, expects))

    return _items(text, tiles, flag, expects)


def parse_names(text: str) -> tuple[str, ...]:
    """Return the names of a comma-separated list, without blanks and repeats."""
    return tuple(dict.fromkeys(name for part in text.split(",") if (name := part.strip())))


def parse_fraction(value: object, flag: str, *, low: float = 0.0, high: float = 1.0) -> float:
    """Return a percentage such as `"3%"` as a fraction.

    Raises UsageError for a text without a percent sign, because 0.5 may mean 0.5% or 50%, and for a
    percentage that is not between `low` and `high`.
    """
    text = str(value)
    try:
        number = float(text[:-1]) / 100 if text.endswith("%") else math.nan
    except ValueError:
        number = math.nan
    if not low <= number <= high:
        raise UsageError(
            f"{flag}: '{shown(text)}' is not a percentage with its sign, from {100 * low:g}% to "
            f"{100 * high:g}%, such as 3%"
        )
    return number


def _items(
    text: str, parse: Callable[[str], Iterable[Item]], flag: str, expects: str
) -> tuple[Item, ...]:
    """Parse the items of a comma-separated list, and return them in order, without repeats."""
    items: dict[Item, None] = {}
    count = 0
    for part in text.split(","):
        item = part.strip()
        if not item:
            raise UsageError(f"{flag}: an item of '{shown(text)}' is empty; {expects}")
        for parsed in parse(item):
            items[parsed] = None
            count += 1
        if len(items) > MAX_ITEMS or count > 10 * MAX_ITEMS:  # reading repeats takes time, too
            raise UsageError(f"{flag}: more than {MAX_ITEMS} items; widen the step")
    return tuple(items)


def _span(item: str, flag: str, expects: str) -> Iterable[int]:
    """Return the integers of an item, which is a number or a span such as `64..512:64`."""
    if _NUMBER.fullmatch(item):
        return (_bounded(item, item, flag, expects),)
    match = _SPAN.fullmatch(item)
    if not match:
        raise UsageError(f"{flag}: '{shown(item)}' is not understood; {expects}")
    low, high = (_bounded(number, item, flag, expects) for number in match.group(1, 2))
    if low > high:
        raise UsageError(f"{flag}: '{shown(item)}' runs backwards; write {high}..{low}")
    factor, step = bool(match[3]), _bounded(match[4] or "1", item, flag, expects)
    if factor and step == 1:
        raise UsageError(f"{flag}: '{shown(item)}' never ends: a factor must be 2 or more")
    if not factor and (high - low) // step >= MAX_ITEMS:
        raise UsageError(f"{flag}: '{shown(item)}' has more than {MAX_ITEMS} items; widen the step")
    return _multiples(low, high, step) if factor else range(low, high + 1, step)


def _multiples(low: int, high: int, factor: int) -> Iterator[int]:
    while low <= high:
        yield low
        low *= factor


def _bounded(number: str, item: str, flag: str, expects: str) -> int:
    # The length is checked first, because int() takes seconds for a million digits, or refuses more
    # than 4300 digits.
    digits = number.lstrip("0") or "0"
    if len(digits) > len(str(LARGEST)) or not 1 <= int(digits) <= LARGEST:
        raise UsageError(
            f"{flag}: '{shown(item)}' is out of range: it must be from 1 to {LARGEST}; {expects}"
        )
    return int(digits)


# ---- readers: functions that take the flag and the text of an option, and raise UsageError


def one_of(*choices: str) -> Callable[[str, str], str]:
    """Return a function that reads an option whose value is one of `choices`."""

    def read(flag: str, text: str) -> str:
        if text not in choices:
            raise UsageError(f"{flag}: {unknown('value', text, choices)}")
        return text

    return read


def one_or_both(kind: type[Cache | Scope | State]) -> Callable[[str, str], tuple[Any, ...]]:
    """Return a function that reads an option whose value is a member of `kind`, or `both`."""
    choose = one_of(*kind, "both")
    return lambda flag, text: tuple(kind) if choose(flag, text) == "both" else (kind(text),)


def named(flag: str, text: str) -> tuple[str, ...]:
    """Return the names in an option's list, which the registry checks later."""
    if names := parse_names(text):
        return names
    raise UsageError(f"{flag}: the list is empty; 'gpubench variants' lists the variants")


def list_of(
    choices: Iterable[str], aliases: Mapping[str, str] | None = None
) -> Callable[[str, str], tuple[str, ...]]:
    """Return a function that reads an option whose value is a list of `choices`.

    The function drops repeats, and replaces aliases by the names that they stand for.
    """

    def read(flag: str, text: str) -> tuple[str, ...]:
        if names := parse_names(text):
            full_names = ((aliases or {}).get(name.lower(), name) for name in names)
            return tuple(dict.fromkeys(one_of(*choices)(flag, name) for name in full_names))
        raise UsageError(f"{flag}: the list is empty; known: {', '.join(choices)}")

    return read


def seconds(low: float, high: float) -> Callable[[str, str], float]:
    """Return a function that reads a duration such as `90`, `90s`, `2m` or `1h`, in seconds."""

    def read(flag: str, text: str) -> float:
        parts = re.fullmatch(
            r"(\d+(?:\.\d*)?(?:e[+-]?\d+)?)([smh]?)", text.strip().lower(), re.ASCII
        )
        if parts is None:
            raise UsageError(f"{flag}: '{shown(text)}' is not a duration, such as 90, 90s or 2m")
        duration_s = float(parts[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[parts[2]]
        return within(low, high)(flag, duration_s)

    return read


def within(low: float, high: float) -> Callable[[str, float], float]:
    """Return a function that returns a number from `low` to `high`, and refuses other numbers."""

    def read(flag: str, number: float) -> float:
        if not low <= number <= high:
            form = "" if isinstance(number, int) else "g"
            raise UsageError(
                f"{flag}: {number:{form}} is out of range: it must be from {low:{form}} to "
                f"{high:{form}}"
            )
        return number

    return read


def file_path(flag: str, path: Path) -> Path:
    """Return the path if it names a file, or else raise UsageError."""
    if not path.name:
        raise UsageError(f"{flag}: '{path}' does not name a file")
    return path


def require_ending(flag: str, path: Path, *endings: str) -> None:
    """Raise UsageError if the name of a file to write has none of these endings."""
    if path.suffix.lower() not in endings:
        raise UsageError(f"{flag}: '{shown(str(path))}' does not end in {', '.join(endings)}")


def csv_path(flag: str, path: Path) -> Path:
    """Return the path if it ends in .csv or .csv.gz, or else raise UsageError."""
    if not file_path(flag, path).name.endswith((".csv", ".csv.gz")):
        name = shown(str(path))
        raise UsageError(
            f"{flag}: '{name}' does not end in .csv or .csv.gz: results are a CSV, such as "
            f"{shown(str(path.with_name(path.stem)))}.csv"
        )
    return path


_FORMATS = {".txt": "text", ".md": "markdown", ".csv": "csv", ".json": "json", ".xml": "junit"}
"""Maps the ending of a file's name to the format of the content."""

Format = TypeVar("Format", bound=StrEnum)


def format_of(output: Path | None, formats: type[Format]) -> Format:
    """Return the format that the name of a file states. Without a file, return the text format.

    Raises UsageError if the name states none of `formats`.
    """
    if output is None:
        return formats("text")
    endings = {ending: name for ending, name in _FORMATS.items() if name in {*formats}}
    suffix = Path(output.name.removesuffix(".gz")).suffix.lower()
    if suffix not in endings:
        raise UsageError(f"--output: add --format, or end the name in {', '.join(endings)}")
    return formats(endings[suffix])
