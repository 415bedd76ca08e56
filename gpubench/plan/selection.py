"""`--only` and `--exclude`: which rows of result files a command uses."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from gpubench.errors import UsageError
from gpubench.model import DTYPE_ALIASES, OPERATIONS
from gpubench.plan.ranges import parse_names, parse_sizes, parse_tiles
from gpubench.results.row import Row, read
from gpubench.text import unknown


def matching(flag: str, kind: str, pattern: str, names: Collection[str]) -> list[str]:
    """Return the names that fit a pattern such as `cpu_*`. Raises UsageError if there is none."""
    if matches := [name for name in names if fnmatchcase(name, pattern)]:
        return matches
    raise UsageError(f"{flag}: {unknown(kind, pattern, names)}")


def selection(
    rows: Sequence[Row], only: str | None = None, exclude: str | None = None
) -> Callable[[Row], bool]:
    """Return the function that says whether `--only` and `--exclude` keep a row.

    Each is a list of terms: variants, dtypes, sizes and tiles. `only` keeps the rows that match a
    term of every kind that it has. `exclude` removes the rows that match any of its terms. Raises
    UsageError for a term that matches none of the rows, and if no row is left.
    """
    included = _matches("--only", only, rows)
    excluded = _matches("--exclude", exclude, rows)

    def keep(row: Row) -> bool:
        return all(kind.value(row) in values for kind, values in included.items()) and not any(
            kind.value(row) in values for kind, values in excluded.items()
        )

    if rows and not any(map(keep, rows)):
        flags = " and ".join(["--only"] * bool(only) + ["--exclude"] * bool(exclude))
        raise UsageError(f"{flags}: none of the {len(rows)} rows is left")
    return keep


def read_selected(
    files: Sequence[Path], only: str | None = None, exclude: str | None = None
) -> list[tuple[Path, list[Row]]]:
    """Read the rows of files that `--only` and `--exclude` keep. Raises UsageError."""
    rows_of_files = [(path, read(path)) for path in files]
    keep = selection([row for _, rows in rows_of_files for row in rows], only, exclude)
    return [(path, list(filter(keep, rows))) for path, rows in rows_of_files]


def with_former_options(only: str | None, **texts: str | None) -> str | None:
    """Return `--only` with the items of options that it replaced: `size="64,128"`, `tile="16"`."""
    terms = [f"{kind}={item}" for kind, text in texts.items() for item in parse_names(text or "")]
    return ",".join(filter(None, [only, *terms])) or only


@dataclass(frozen=True, kw_only=True, eq=False)
class _Kind:
    """A kind of term."""

    name: str
    value: Callable[[Row], Any]
    """What the terms of this kind are compared with."""

    matches: Callable[[str, set[Any]], set[Any]]
    """Takes a term and the values of all rows, and returns the values that the term matches."""


def _fitting(pattern: str, names: set[str]) -> set[str]:
    return {name for name in names if fnmatchcase(name, pattern)}


def _sizes(term: str, sizes: set[tuple[str, int, int, int]]) -> set[tuple[str, int, int, int]]:
    """Parse the term as a size of each operation that the rows have."""
    matches = set()
    for op in {op for op, *_ in sizes} & OPERATIONS.keys():
        with suppress(UsageError):
            matches |= {(op, *size) for size in parse_sizes(term, op)}
    return sizes & matches


def _tiles(term: str, tiles: set[str]) -> set[str]:
    with suppress(UsageError):
        return tiles & set(parse_tiles(term))
    return _fitting(term, tiles)


_KINDS = (
    _Kind(name="variant", value=lambda row: row.variant, matches=_fitting),
    _Kind(
        name="dtype",
        value=lambda row: row.compute_mode or row.dtype,
        matches=lambda term, dtypes: _fitting(DTYPE_ALIASES.get(term.lower(), term), dtypes),
    ),
    _Kind(name="size", value=lambda row: (row.op, row.m, row.n, row.k), matches=_sizes),
    _Kind(name="tile", value=lambda row: row.tile, matches=_tiles),
)
"""The kinds of terms. A term is of the first kind that some row matches, so 64 is a size if there
is one. `tile=64` names the kind."""


def _matches(flag: str, text: str | None, rows: Sequence[Row]) -> dict[_Kind, set[Any]]:
    """Return the values that the terms match, by kind."""
    matches: dict[_Kind, set[Any]] = {}
    if text is None:
        return matches
    values = {kind: {kind.value(row) for row in rows} for kind in _KINDS}
    for term in parse_names(text):
        name, _, rest = term.partition("=")
        named = [kind for kind in _KINDS if kind.name == name]
        pattern = rest if named else term
        for kind in named or _KINDS:
            if values_of_term := kind.matches(pattern, values[kind]):
                matches.setdefault(kind, set()).update(values_of_term)
                break
        else:
            raise UsageError(f"{flag}: {_no_match(pattern, named, rows)}")
    if not matches:
        raise UsageError(f"{flag}: the list is empty; write such as shared_tile,float32,1024")
    return matches


def _no_match(term: str, named: Sequence[_Kind], rows: Sequence[Row]) -> str:
    """`unknown variant or dtype 'naif'; did you mean 'naive'?`, for a term that matches no row."""
    kinds = [kind.name for kind in named]
    if not kinds:
        kinds = ["size", "tile"] if term[:1].isdecimal() else ["variant", "dtype"]
    columns = {"dtype": "compute_mode"}
    texts = (getattr(row, columns.get(kind, kind)) for kind in kinds for row in rows)
    return unknown(" or ".join(kinds), term, dict.fromkeys(filter(None, texts)))
