"""Reads `--only` and `--exclude`, which select the rows of result files for a command."""

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TypeVar

from gpubench.errors import UsageError
from gpubench.model import DTYPE_ALIASES, OPERATIONS
from gpubench.plan.ranges import parse_names, parse_sizes, parse_tiles
from gpubench.results.build_row import BuildRow
from gpubench.results.row import Row, read
from gpubench.text import counted, unknown

AnyRow = TypeVar("AnyRow", Row, BuildRow)


def matching(flag: str, kind: str, pattern: str, names: Collection[str]) -> list[str]:
    """Return the names that fit a pattern such as `cpu_*`. Raises UsageError if no name fits."""
    if matches := [name for name in names if fnmatchcase(name, pattern)]:
        return matches
    raise UsageError(f"{flag}: {unknown(kind, pattern, names)}")


def selection(
    rows: Sequence[AnyRow], only: str | None = None, exclude: str | None = None
) -> Callable[[AnyRow], bool]:
    """Return a function that reports whether `--only` and `--exclude` keep a row.

    Both texts are lists of terms: variants, dtypes, sizes and tiles. `only` keeps the rows that
    match one of its terms of each kind, such as one of its sizes and one of its tiles. `exclude`
    removes the rows that match any of its terms. Raises UsageError for a term that matches no row,
    and if no row is left.
    """
    included = _matches("--only", only, rows)
    excluded = _matches("--exclude", exclude, rows)

    def keep(row: AnyRow) -> bool:
        values = {kind: value(row) for kind, (value, _) in _KINDS.items()}
        return all(values[kind] in chosen for kind, chosen in included.items()) and not any(
            values[kind] in chosen for kind, chosen in excluded.items()
        )

    if rows and not any(map(keep, rows)):
        flags = " and ".join((["--only"] if only else []) + (["--exclude"] if exclude else []))
        raise UsageError(f"{flags}: none of {counted(len(rows), 'row')} is left")
    return keep


def read_selected(
    files: Sequence[Path], only: str | None = None, exclude: str | None = None
) -> list[tuple[Path, list[Row]]]:
    """Read files, and return the rows that `--only` and `--exclude` keep. Raises UsageError."""
    rows_of_files = [(path, read(path)) for path in files]
    keep = selection([row for _, rows in rows_of_files for row in rows], only, exclude)
    return [(path, list(filter(keep, rows))) for path, rows in rows_of_files]


def _fitting(pattern: str, names: set[str]) -> set[str]:
    return {name for name in names if fnmatchcase(name, pattern)}


def _sizes(term: str, sizes: set[tuple[Any, ...]]) -> set[tuple[Any, ...]]:
    """Return the sizes that a term matches. The term is parsed as a size of each operation."""
    matches = set()
    for op in {op for op, *_ in sizes} & OPERATIONS.keys():
        with suppress(UsageError):
            matches |= {(op, *size) for size in parse_sizes(term, op)}
    return sizes & matches


def _tiles(term: str, tiles: set[str]) -> set[str]:
    with suppress(UsageError):
        return tiles & set(parse_tiles(term))
    return _fitting(term, tiles)


_KINDS: dict[str, tuple[Callable[[Row | BuildRow], Any], Callable[[str, set[Any]], set[Any]]]] = {
    "variant": (lambda row: row.variant, _fitting),
    "dtype": (
        lambda row: row.compute_mode or row.dtype,
        lambda term, dtypes: _fitting(DTYPE_ALIASES.get(term.lower(), term), dtypes),
    ),
    "size": (lambda row: (row.op, *row.numbers), _sizes),
    "tile": (lambda row: row.tile, _tiles),
}
"""Maps each kind of term to two functions. The first function returns a row's value. The second
function returns the values that a term matches, among the values of all rows. A term has the first
kind that matches a row, so 64 is a size if any row has the size 64. `tile=64` states the kind."""


def _matches(flag: str, text: str | None, rows: Sequence[Row | BuildRow]) -> dict[str, set[Any]]:
    """Return the values that the terms match, for each kind of term."""
    matches: dict[str, set[Any]] = {}
    if text is None:
        return matches
    values = {kind: set(map(value, rows)) for kind, (value, _) in _KINDS.items()}
    for term in parse_names(text):
        name, _, value = term.partition("=")
        kinds, pattern = ([name], value) if name in _KINDS else (list(_KINDS), term)
        for kind in kinds:
            if values_of_term := _KINDS[kind][1](pattern, values[kind]):
                matches.setdefault(kind, set()).update(values_of_term)
                break
        else:
            raise UsageError(f"{flag}: {_no_match(pattern, kinds, rows)}")
    if not matches:
        raise UsageError(f"{flag}: the list is empty; write terms such as shared_tile,float32,1024")
    return matches


def _no_match(term: str, kinds: Sequence[str], rows: Sequence[Row | BuildRow]) -> str:
    """Return a message such as `unknown variant or dtype 'naif'; did you mean 'naive'?`."""
    if len(kinds) > 1:
        kinds = ["size", "tile"] if term[:1].isdecimal() else ["variant", "dtype"]
    columns = ("compute_mode" if kind == "dtype" else kind for kind in kinds)
    texts = (getattr(row, column) for column in columns for row in rows)
    return unknown(" or ".join(kinds), term, dict.fromkeys(filter(None, texts)))
