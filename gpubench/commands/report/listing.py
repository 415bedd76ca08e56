"""The tables of the page, as text: what stands in each, in which order, under which head."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from gpubench.model import Status
from gpubench.row import COLUMNS, KEY, Row
from gpubench.view.tables import best_of, milliseconds, number, spans, tied_tiles

MEANINGS = {column.name: str(column.metadata["meaning"]) for column in COLUMNS}

HEADS = {
    "gflops": "GFLOP/s",
    "gbytes_per_s": "GB/s",
    "percent_of_peak": "% of peak",
    "percent_of_peak_at_clock": "% of peak at clock",
    "percent_of_copy": "% of copy",
    "percent_of_blas": "% of BLAS",
    "local_bytes": "local bytes",
    "arithmetic_intensity": "FLOP/byte",
    "cgma": "CGMA",
    "sm_mhz": "SM MHz",
    "nvml_sm_mhz": "NVML SM MHz",
    "memory_mhz": "memory MHz",
    "temperature_c": "°C",
    "power_w": "W",
}
"""Heads of columns that read better than their names in the CSV."""

GROUPS = ("rates", "why", "clocks")
"""Groups of the CSV's columns that the list of points shows whole."""

CHOICES = {"variant", "size", "dtype", "cache", "scope", "on", "file"}
"""Columns with a menu above the table, if they hold more than one value."""

DIGITS, PERCENT_DIGITS = 4, 3
"""Significant digits of a figure, and of a percentage."""


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column: its head, what it means, and its text for a row."""

    title: str
    value: Callable[[Row], str]
    numeric: bool = False
    meaning: str = ""
    wraps: bool = False

    @property
    def css(self) -> str:
        """Classes of its cells."""
        return "n" if self.numeric else "wrap" if self.wraps else ""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A menu above a table: the values of a column."""

    name: str
    column: int
    values: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Line:
    """A row of a table; `mark` is how it stands out: best, bad or not at all."""

    cells: tuple[str, ...]
    mark: str = ""


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table with its menus."""

    id: str
    title: str
    caption: str
    columns: tuple[Column, ...]
    lines: tuple[Line, ...]

    @property
    def choices(self) -> list[Choice]:
        """A menu for each column that names things, if there is a choice."""
        menus = []
        for index, column in enumerate(self.columns):
            values = tuple(dict.fromkeys(line.cells[index] for line in self.lines))
            if column.title in CHOICES and len(values) > 1:
                menus.append(Choice(name=column.title, column=index, values=values))
        return menus


def best_table(rows: Sequence[Row]) -> Table:
    """The best tile of each variant at each size, the fastest of each size marked."""
    groups = _groups(rows, lambda row: (*_problem(row), row.variant))
    best = [best_of(of_variant) for of_variant in groups.values()]
    fastest = {id(best_of(some)) for some in _groups(best, _problem).values()}
    ties = {id(best_of(some)): tied_tiles(some, best_of(some)) for some in groups.values()}
    columns = (
        *_what(rows),
        Column(title="best tile", value=lambda row: ", ".join(ties[id(row)])),
        *_time(),
        *_of_groups(
            {"gflops", "gbytes_per_s", "percent_of_peak", "percent_of_copy", "percent_of_blas"}
        ),
    )
    return _table(
        [row for some in _groups(best, _problem).values() for row in _by_time(some)],
        id="best",
        title="Best per size",
        caption="The fastest tile of each variant; tiles after a comma may be as fast, as their "
        "intervals overlap. The fastest variant of each size is green.",
        columns=columns,
        mark=lambda row: "best" if id(row) in fastest else "",
    )


def point_table(rows: Sequence[Row], files: Sequence[str]) -> Table:
    """Every measured point with its rates, what explains them, the clocks, and its row's file."""
    origin = {id(row): name for row, name in zip(rows, files, strict=True)}
    best = {id(best_of(some)) for some in _groups(rows, _series).values()}
    columns = (
        *_what(rows),
        Column(title="tile", value=lambda row: row.tile),
        *_time(),
        *_of_groups({column.name for column in COLUMNS if column.metadata["group"] in GROUPS}),
        Column(
            title="samples",
            value=lambda row: _figure(row.samples),
            numeric=True,
            meaning=MEANINGS["samples"],
        ),
        *([Column(title="file", value=lambda row: origin[id(row)])] if len(set(files)) > 1 else []),
    )
    return _table(
        rows,
        id="points",
        title="All points",
        caption="Each measured point: its rates, what explains them, the clocks. The best tile of "
        "each variant is green.",
        columns=columns,
        mark=lambda row: "best" if id(row) in best else "",
    )


def failure_table(rows: Sequence[Row]) -> Table:
    """What has no time, and why: one line a status, variant, size and reason."""
    groups = _groups(rows, lambda row: (row.status, *_series(row), row.reason))
    tiles = {id(some[0]): spans([row.tile for row in some if row.tile]) for some in groups.values()}
    columns = (
        *_what(rows),
        Column(title="tiles", value=lambda row: tiles[id(row)]),
        Column(title="status", value=lambda row: row.status or ""),
        Column(title="reason", value=lambda row: row.reason or "", wraps=True),
    )
    return _table(
        [some[0] for some in groups.values()],
        id="failures",
        title="Skipped and failed",
        caption="Points without a time, and the reason.",
        columns=columns,
        mark=lambda row: "" if row.status == Status.SKIPPED else "bad",
    )


def _table(
    rows: Iterable[Row],
    *,
    id: str,  # noqa: A002 - HTML's word for it
    title: str,
    caption: str,
    columns: Sequence[Column],
    mark: Callable[[Row], str],
) -> Table:
    """A table without the columns in which no row has anything."""
    rows = list(rows)
    kept = tuple(one for one in columns if any(one.value(row) for row in rows))
    lines = tuple(Line(cells=tuple(one.value(row) for one in kept), mark=mark(row)) for row in rows)
    return Table(id=id, title=title, caption=caption, columns=kept, lines=lines)


def _what(rows: Sequence[Row]) -> list[Column]:
    """The columns that say what a row is; those in which all rows agree are left out."""
    columns = [
        Column(title="variant", value=lambda row: row.variant, meaning=MEANINGS["variant"]),
        Column(title="size", value=lambda row: row.size, meaning="N, or M×N×K if not a square"),
    ]
    if any(row.compute_mode != row.dtype for row in rows):
        columns.append(_as_it_is("arithmetic", "compute_mode"))
    names = ("op", "dtype", "cache", "scope", "timer", "device", "gpubench")
    varying = [name for name in names if len({getattr(row, name) for row in rows}) > 1]
    titles = {"device": "on"}
    return [*columns, *(_as_it_is(titles.get(name, name), name) for name in varying)]


def _as_it_is(title: str, name: str) -> Column:
    """A column of the CSV that is text."""
    return Column(title=title, value=lambda row: getattr(row, name) or "", meaning=MEANINGS[name])


def _time() -> list[Column]:
    return [
        Column(
            title="ms",
            value=lambda row: milliseconds(row.median_us),
            numeric=True,
            meaning=MEANINGS["median_us"],
        ),
        Column(
            title="± %",
            value=_spread,
            numeric=True,
            meaning="half the 95 % interval of the median, in percent of it",
        ),
    ]


def _by_time(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: row.median_us or 0.0)


def _spread(row: Row) -> str:
    if row.ci_low_us is None or row.ci_high_us is None or not row.median_us:
        return ""
    return number(50 * (row.ci_high_us - row.ci_low_us) / row.median_us, 2)


def _of_groups(names: Iterable[str]) -> list[Column]:
    """The CSV's columns of these names, in its order."""
    wanted = set(names)
    return [
        Column(
            title=HEADS.get(column.name, column.name.replace("_", " ")),
            value=_value(column.name),
            numeric="str" not in str(column.type),
            meaning=MEANINGS[column.name],
        )
        for column in COLUMNS
        if column.name in wanted
    ]


def _value(name: str) -> Callable[[Row], str]:
    digits = PERCENT_DIGITS if name.startswith("percent") else DIGITS
    return lambda row: _figure(getattr(row, name), digits)


def _figure(value: object, digits: int = 0) -> str:
    """So many significant digits of a float, all of an integer; text as it is."""
    if value is None:
        return ""
    if not isinstance(value, float):
        return f"{value:,}" if isinstance(value, int) else str(value)
    whole = len(str(int(round(abs(value), 6))))
    return number(value, max(0, digits - whole))


def _problem(row: Row) -> tuple[Any, ...]:
    """What rows that may be compared agree in, and the device and version they come from."""
    key = tuple(getattr(row, name) for name in KEY if name not in {"variant", "tile"})
    return (*key, row.device, row.gpubench)


def _series(row: Row) -> tuple[Any, ...]:
    return (*_problem(row), row.variant)


def _groups(rows: Iterable[Row], key: Callable[[Row], tuple[Any, ...]]) -> dict[Any, list[Row]]:
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups
