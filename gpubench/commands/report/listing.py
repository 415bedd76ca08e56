"""The tables of the page, as text: what stands in each, in which order, under which head."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from gpubench.model import Status
from gpubench.row import COLUMNS, Row
from gpubench.view.pictures.series import grouped
from gpubench.view.tables import best_of, milliseconds, number, spans, tied_tiles

CSV_COLUMNS = {column.name: column for column in COLUMNS}
MEANINGS = {name: str(column.metadata["meaning"]) for name, column in CSV_COLUMNS.items()}

HEADS = {
    "compute_mode": "arithmetic",
    "device": "on",
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

BEST_RATES = ("gflops", "gbytes_per_s", "percent_of_peak", "percent_of_blas", "percent_of_copy")
"""Columns of the table of best tiles."""

GROUPS = ("rates", "why", "clocks")
"""Groups of the CSV's columns that the list of points shows whole."""

MENUS = {"variant", "size", "dtype", "cache", "scope", "on", "file"}
"""Columns with a menu above the table, if they hold more than one value."""

DIGITS, PERCENT_DIGITS = 4, 3
"""Significant digits of a figure, and of a percentage."""


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column: its head, its text for a row, the CSS class of its cells, what it means."""

    title: str
    text: Callable[[Row], str]
    css: str = ""
    meaning: str = ""


class Table:
    """A table as text; a column in which no row has anything is left out."""

    def __init__(
        self,
        title: str,
        caption: str,
        rows: Sequence[Row],
        columns: Iterable[Column],
        css: Callable[[Row], str],
    ) -> None:
        self.title = title
        self.caption = caption
        self.columns = [column for column in columns if any(map(column.text, rows))]
        self.lines = [(css(row), [column.text(row) for column in self.columns]) for row in rows]
        """The CSS class of each row (best, bad or none) and its cells."""

    @property
    def menus(self) -> list[tuple[int, str, list[str]]]:
        """Index, head and values of each column that names things, if there is a choice."""
        columns = [
            (index, column.title, list(dict.fromkeys(cells[index] for _, cells in self.lines)))
            for index, column in enumerate(self.columns)
            if column.title in MENUS
        ]
        return [(index, title, values) for index, title, values in columns if len(values) > 1]


def best_table(rows: Sequence[Row]) -> Table:
    """The best tile of each variant at each size, the fastest of each size marked."""
    best, tiles = [], {}
    for of_variant in grouped(rows, _series).values():
        best.append(best_of(of_variant))
        tiles[id(best[-1])] = ", ".join(tied_tiles(of_variant, best[-1]))
    sizes = grouped(best, _problem).values()
    fastest = {id(best_of(of_size)) for of_size in sizes}
    return Table(
        "Best per size",
        "The fastest tile of each variant; tiles after a comma may be as fast, as their intervals "
        "overlap. The fastest variant of each size is green.",
        [row for of_size in sizes for row in sorted(of_size, key=lambda row: row.median_us or 0.0)],
        [
            *_what(rows),
            Column(title="best tile", text=lambda row: tiles[id(row)]),
            *_time(),
            *map(_of_csv, BEST_RATES),
        ],
        lambda row: "best" if id(row) in fastest else "",
    )


def point_table(rows: Sequence[Row], files: Sequence[str]) -> Table:
    """Every measured point with its rates, what explains them, the clocks, and its row's file."""
    file_of = {id(row): name for row, name in zip(rows, files, strict=True)}
    best = {id(best_of(of_variant)) for of_variant in grouped(rows, _series).values()}
    names = [name for name, column in CSV_COLUMNS.items() if column.metadata["group"] in GROUPS]
    columns = [
        *_what(rows),
        _of_csv("tile"),
        *_time(),
        *map(_of_csv, names),
        _of_csv("samples"),
    ]
    if len(set(files)) > 1:
        columns.append(Column(title="file", text=lambda row: file_of[id(row)]))
    return Table(
        "All points",
        "Each measured point: its rates, what explains them, the clocks. The best tile of each "
        "variant is green.",
        rows,
        columns,
        lambda row: "best" if id(row) in best else "",
    )


def failure_table(rows: Sequence[Row]) -> Table:
    """What has no time, and why: one line a status, variant, size and reason."""
    groups = grouped(rows, lambda row: (row.status, *_series(row), row.reason)).values()
    tiles = {id(of[0]): spans([row.tile for row in of if row.tile]) for of in groups}
    return Table(
        "Skipped and failed",
        "Points without a time, and the reason.",
        [of[0] for of in groups],
        [
            *_what(rows),
            Column(title="tiles", text=lambda row: tiles[id(row)]),
            Column(title="status", text=lambda row: row.status or ""),
            Column(title="reason", text=lambda row: row.reason or "", css="wrap"),
        ],
        lambda row: "" if row.status == Status.SKIPPED else "bad",
    )


def _what(rows: Sequence[Row]) -> list[Column]:
    """The columns that say what a row is; those in which all rows agree are left out."""
    size = Column(
        title="size", text=lambda row: row.size, meaning="N, or M×N×K if it is not a square"
    )
    varying = [
        name
        for name in ("op", "dtype", "cache", "scope", "timer", "device", "gpubench")
        if len({getattr(row, name) for row in rows}) > 1
    ]
    if any(row.compute_mode != row.dtype for row in rows):
        varying.insert(0, "compute_mode")
    return [_of_csv("variant"), size, *map(_of_csv, varying)]


def _time() -> list[Column]:
    return [
        Column(
            title="ms",
            text=lambda row: milliseconds(row.median_us),
            css="n",
            meaning=MEANINGS["median_us"],
        ),
        Column(
            title="± %",
            text=_half_interval,
            css="n",
            meaning="half the 95 % interval of the median, in percent of it",
        ),
    ]


def _half_interval(row: Row) -> str:
    if row.ci_low_us is None or row.ci_high_us is None or not row.median_us:
        return ""
    return number(50 * (row.ci_high_us - row.ci_low_us) / row.median_us, 2)


def _of_csv(name: str) -> Column:
    """A column of the CSV."""
    digits = PERCENT_DIGITS if name.startswith("percent") else DIGITS
    return Column(
        title=HEADS.get(name, name.replace("_", " ")),
        text=lambda row: _figure(getattr(row, name), digits),
        css="" if "str" in str(CSV_COLUMNS[name].type) else "n",
        meaning=MEANINGS[name],
    )


def _figure(value: object, digits: int) -> str:
    """So many significant digits of a float, all of an integer; text as it is."""
    if isinstance(value, float):
        whole = len(str(int(round(abs(value), 6))))
        return number(value, max(0, digits - whole))
    if isinstance(value, int):
        return f"{value:,}"
    return str(value or "")


def _problem(row: Row) -> tuple[Any, ...]:
    """What rows that may be compared agree in, and the device and version they come from."""
    return (*row.problem_key, row.device, row.gpubench)


def _series(row: Row) -> tuple[Any, ...]:
    return (*_problem(row), row.variant)
