"""Declares the columns of CSV files, and writes and reads the files.

`Columns` serves the rows of sweeps (`row.py`), of build files (`build_row.py`) and of tables of
tiles (`tile_table.py`).
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
import re
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, Field, field, fields
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Generic, TypeVar

from gpubench.errors import UsageError
from gpubench.model import LARGEST, Size, size_of, size_text
from gpubench.results.other_files import MAX_HEAD, what_it_is
from gpubench.text import clean, shown

if TYPE_CHECKING:
    import pandas as pd

MAX_ROWS = 200_000
"""Maximum number of rows of a file. `diff`, `plot` and `report` need less than a gigabyte of memory
for this number of rows."""

MAX_BYTES = 2**27  # maximum size of a file that `diff`, `plot` and `report` read

MAX_HEADER = 2**16
"""Maximum number of characters of a file's first line, which has the names of the columns."""

MIN_VALUE = 1e-30  # smallest absolute value of a measurement that is not 0
MAX_VALUE = 1e30  # largest absolute value of a measurement

_FORMULA = re.compile(r"'*(?:[=+@]|-(?!\Z))")
"""Matches the beginning of a text that a spreadsheet would compute as a formula. The pattern also
matches apostrophes before the formula, which prevent the computation."""

_MISSING = {"", "nan", "NaN", "NAN"}
"""Texts that are read as a missing number. pandas may write NaN."""

_OFTEN_EMPTY = {"tile", "extents"}  # columns of the key that are empty for most rows of some files

MAX_TEXT = 30_000
"""Maximum number of characters of a text. The times or the seeds of 1000 rounds fit into such a
text."""

_SHARED = 1000
"""Maximum number of values that the parser of a column caches. Rows with equal values then share
one object."""


def column(
    group: str, meaning: str, *, low: float = 0.0, high: float = MAX_VALUE, default: object = None
) -> Any:
    """Declare a column: its group, its meaning, and its lowest and highest valid number.

    Only columns of the group `key` are mandatory, unless they have a `default`.
    """
    metadata = {"group": group, "meaning": meaning, "range": (low, high)}
    is_mandatory = group == "key" and default is None
    return field(default=MISSING if is_mandatory else default, metadata=metadata)


R = TypeVar("R")


class OfSize:
    """A row with the columns `op`, `m`, `n`, `k` and `extents`."""

    __slots__ = ()
    op: str

    @property
    def numbers(self) -> Size:
        """M, N, K and the further extents."""
        return size_of(self)

    @property
    def size(self) -> str:
        """The size in the form that `--sizes` accepts."""
        return size_text(self.op, self.numbers)


class Columns(Generic[R]):
    """The columns of a file, which are the fields of a dataclass with slots."""

    def __init__(self, row: type[R], required: Collection[str], kind: str) -> None:
        """`required` has the columns that every file must have. Messages call the file `kind`."""
        self.fields: tuple[Field[Any], ...] = fields(row)  # type: ignore[arg-type]
        self.names = tuple(each.name for each in self.fields)
        self._key = {each.name for each in self.fields if each.metadata["group"] == "key"}
        self._row, self._required, self._kind = row, tuple(required), kind
        self._defaults = {
            each.name: None if each.default is MISSING else each.default for each in self.fields
        }
        self._slots = {name: getattr(row, name).__set__ for name in self.names}
        self._parsers = {each.name: _parser(each) for each in self.fields}

    def encode(self, rows: Iterable[R]) -> bytes:
        """Return the bytes of a CSV with these rows. `read` accepts this CSV.

        A number that `read` would refuse, such as infinity, becomes an empty field.
        """
        lines = ([self._readable(name, getattr(row, name)) for name in self.names] for row in rows)
        return encode_csv(self.names, lines)

    def _readable(self, name: str, value: Any) -> Any:
        value = as_field(value)
        if value is None or (isinstance(value, str) and name != "round_medians_us"):
            return value
        try:
            self._parsers[name](str(value))
        except ValueError:
            return None
        return value

    def read(self, path: Path, columns: Collection[str] | None = None) -> list[R]:
        """Read the rows of a file, even if pandas or a spreadsheet has rewritten it.

        Columns may be in any order, columns that are not required may be missing, and unknown
        columns are ignored. Fields may be separated by commas, semicolons or tabs. Content of
        gzip is decompressed. `columns` names the columns that the caller needs in addition to the
        key. Reading fewer columns takes less time.

        Raises UsageError for a file of more than `MAX_ROWS` rows, and for an invalid field. The
        message names the line and the column of the field.
        """
        with opened(path) as file:
            refusal = f"{path}: not {self._kind}"
            is_json = file.read(1) == "{"
            file.seek(0)
            text = self._of_json(file.read(), refusal) if is_json else file
            rows = self._rows(text, str(path), refusal, columns)
        if len(rows) > MAX_ROWS:
            raise _too_large(path)
        return rows

    def _of_json(self, text: str, refusal: str) -> IO[str]:
        """Convert the JSON output of `show` or `judge` to a CSV, and return the CSV as a file."""
        try:
            document = json.loads(text)
        except (ValueError, RecursionError):
            document = None
        rows = document.get("rows") if isinstance(document, dict) else None
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise UsageError(f"{refusal}: {what_it_is(text[:MAX_HEAD])}")
        names = list(dict.fromkeys(chain(self._required, *rows)))
        return io.StringIO(
            encode_csv(names, ([row.get(name) for name in names] for row in rows)).decode()
        )

    def _rows(
        self, file: IO[str], place: str, refusal: str, columns: Collection[str] | None = None
    ) -> list[R]:
        lines = _lines(file)
        names: list[str] = next(lines, [])
        if not names:
            raise UsageError(f"{refusal}: the file is empty")
        for name in self._required:
            if name not in names:
                file.seek(0)
                missing = (
                    f"column '{name}' is missing in the first line, '{shown(','.join(names))}'"
                )
                raise UsageError(f"{refusal}: {what_it_is(file.read(MAX_HEAD)) or missing}")
        if twice := [name for name in self.names if names.count(name) > 1]:
            raise UsageError(f"{refusal}: the first line has column '{twice[0]}' twice")
        chosen = {*self._key, *(self.names if columns is None else columns)}
        parsers = [
            (at, name, self._parsers[name])
            for at, name in enumerate(names)
            if name in chosen and name in self._parsers
        ]
        rows = []
        for line in lines:
            if len(line) != len(names):
                if not line:  # an empty line
                    continue
                what = "more fields than columns"
                if len(line) < len(names):
                    what = f"the line ends before column '{names[len(line)]}'"
                raise UsageError(f"{place}:{lines.line_num}: {what}")
            try:
                rows.append(self._make({name: parse(line[at]) for at, name, parse in parsers}))
            except ValueError as error:
                raise UsageError(f"{place}:{lines.line_num}: {error}") from None
        return rows

    def are_in(self, path: Path) -> bool:
        """Return whether the path is a file with all required columns."""
        if not path.is_file():
            return False
        with opened(path, MAX_HEADER) as file:
            return {*self._required} <= set(next(_lines(file), []))

    def rows_of(self, table: pd.DataFrame) -> list[R]:
        """Return the rows of a pandas frame that has the file's columns, in any order.

        pandas writes the frame as a CSV, and this CSV is read. Raises the errors of `read`, and
        UsageError for another object than a frame.
        """
        columns = getattr(table, "columns", None)
        if columns is None:
            raise UsageError(
                f"a frame is needed, as read_csv returns it, not {type(table).__name__}"
            )
        names = [name for name in self.names if name in columns]
        file = io.StringIO(table.to_csv(columns=names, index=False))
        return self._rows(file, "the frame", "not a gpubench frame")

    def _make(self, values: Mapping[str, Any]) -> R:
        """Make a row from parsed values. Calling the class of the row would take 15 times as long.

        The parsers have already cleaned the text.
        """
        row = object.__new__(self._row)
        for name, put in self._slots.items():
            put(row, values.get(name, self._defaults[name]))
        return row


def encode_csv(names: Sequence[str], lines: Iterable[Iterable[object]]) -> bytes:
    """Return a CSV whose texts cannot control a terminal and are no formulas in a spreadsheet."""
    text = io.StringIO(newline="")
    out = csv.writer(text, lineterminator="\n")
    out.writerow(names)
    out.writerows(map(_field, line) for line in lines)
    return text.getvalue().encode()


def packed(path: Path, content: bytes) -> bytes:
    """Return the content of a file `path`, which is compressed if the name ends in `.gz`."""
    return gzip.compress(content, mtime=0) if path.suffix == ".gz" else content


def as_field(value: object) -> object:
    """Convert a value to the content of a field. The numbers of a tuple are joined by `;`."""
    if isinstance(value, tuple):
        return ";".join(map(repr, value)) or None
    return value


def _field(value: object) -> object:
    if not isinstance(value, str):
        return value
    text = clean(value[:MAX_TEXT])
    return f"'{text}" if _FORMULA.match(text) else text


def unguarded(text: str) -> str:
    """Return a text without the apostrophe that `_field` put before the text."""
    return text[1:] if text.startswith("'") and _FORMULA.match(text) else text


_GZIP = b"\x1f\x8b"  # beginning of a file that gzip has written

_NO_TEXT = "it is not text in UTF-8; a spreadsheet can save it as 'CSV UTF-8'"


@contextmanager
def opened(path: Path, most_bytes: int = MAX_BYTES + 1) -> Iterator[IO[str]]:
    """Open the first `most_bytes` bytes of a CSV as text. Content of gzip is decompressed.

    Raises UsageError for a file of more than `MAX_BYTES` or `MAX_ROWS` before any line is read, and
    if reading under `with` shows that the text is not a CSV.
    """
    try:
        with path.open("rb") as raw:
            is_packed = raw.peek(2).startswith(_GZIP)  # browsers decompress, and keep the name
            content = (gzip.GzipFile(fileobj=raw) if is_packed else raw).read(most_bytes)
        is_json = content.removeprefix(codecs.BOM_UTF8).startswith(b"{")  # a row has many lines
        if len(content) > MAX_BYTES or (not is_json and content.count(b"\n") > MAX_ROWS + 1):
            raise _too_large(path)
        if b"\0" in content:
            raise UsageError(f"{path}: not a gpubench CSV: {_NO_TEXT}")
        errors = "strict" if len(content) < most_bytes else "ignore"  # a character may be cut
        yield io.TextIOWrapper(io.BytesIO(content), "utf-8-sig", errors, newline="")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not a gpubench CSV: {_NO_TEXT}") from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UsageError(f"{path}: the compressed file is cut off or damaged") from error
    except csv.Error as error:
        limit = f"a field has more than {csv.field_size_limit():,} characters"
        raise UsageError(
            f"{path}: not a gpubench CSV: {limit}; a quotation mark may not be closed"
        ) from error
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error


def _too_large(path: Path) -> UsageError:
    return UsageError(
        f"{path}: more than {MAX_ROWS:,} rows, or {MAX_BYTES // 2**20} MiB; "
        "split it, such as by size"
    )


def _lines(file: IO[str]) -> Any:
    """Return a CSV reader of a file. `line_num` of the reader is the number of the current line."""
    header = file.readline(MAX_HEADER)
    delimiter = max(",;\t", key=header.count)  # no column's name contains one of these
    return csv.reader(chain([header], file), delimiter=delimiter)


def in_range(number: float, low: float = 0.0, high: float = MAX_VALUE) -> float:
    """Return `number`. Raises ValueError for NaN, and for a number outside the range."""
    if low <= number <= high and (not number or abs(number) >= MIN_VALUE):
        return number
    raise ValueError(f"{number} is not a number from {low:g} to {high:g}")


def _parser(column: Field[Any]) -> Callable[[str], Any]:
    """Return the function that parses the fields of a column.

    For an empty field, the returned function gives the default of the column. For a column of the
    key, the function gives an empty text.

    The returned function raises ValueError for an invalid field. The message names the column and
    the valid values.
    """
    name, kind = column.name, str(column.type).partition(" ")[0]
    convert, what = _CONVERSIONS.get(name) or _CONVERSIONS[kind]
    low, high = _TILES if name == "tile" else column.metadata["range"]
    is_key = column.metadata["group"] == "key"
    missing: Collection[str] = _MISSING
    if is_key and name not in _OFTEN_EMPTY:
        missing = {""} if kind == "str" else ()
    empty = "" if is_key else column.default

    def parsed(text: str) -> Any:
        if text in missing:
            return empty
        try:
            value: Any = convert(text)
            if kind == "str":
                return clean(value[:MAX_TEXT])
            return value if isinstance(value, tuple) else in_range(value, low, high)
        except ValueError:
            place = f"'{text[:60]}' in column '{name}'"
            raise ValueError(f"{place} is not {what} from {low:g} to {high:g}") from None

    return parsed if kind == "float" else lru_cache(_SHARED)(parsed)


_TILES = (1, LARGEST)  # smallest and largest edge of a tile that is a single number


def _tile(text: str) -> str:
    """Parse a tile, which pandas writes as `16.0` instead of `16` if some fields are empty."""
    if re.fullmatch(r"\d+(\.\d*(e[+-]\d+)?)?", text):
        return str(in_range(_whole(text), *_TILES))
    return unguarded(text)


def _whole(text: str) -> int:
    """Parse a whole number. pandas and spreadsheets may write 1024 as `1024.0` or `1.024e+03`."""
    try:
        return int(text)
    except ValueError:
        number = in_range(float(text), -MAX_VALUE)
        if not number.is_integer():
            raise
        return int(number)


def _rounds(text: str) -> tuple[float, ...]:
    """Parse numbers that are joined by `;`."""
    if len(text) > MAX_TEXT:
        raise ValueError
    return tuple(in_range(float(number), MIN_VALUE) for number in text.split(";"))


_CONVERSIONS: dict[str, tuple[Callable[[str], Any], str]] = {
    "tile": (_tile, "a tile"),
    "round_medians_us": (_rounds, "a list of numbers joined by ;, each"),
    "str": (unguarded, "a text"),
    "int": (_whole, "a whole number"),
    "float": (float, "a number"),
}
"""Maps a column or a type to the function that parses a field, and to the name of such a field in
messages."""
