"""The tables of result files, again: as after a sweep, as a list of points, or side by side."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gpubench.errors import UsageError
from gpubench.model import Status
from gpubench.results.row import Row, encode_csv, read
from gpubench.view.tables import (
    Column,
    by_problem,
    console,
    figures,
    marked,
    number,
    pipe_table,
    remarks,
    results,
    rows_table,
    table,
    title,
)

FIGURES = (
    *("op", "m", "n", "k", "dtype", "device", "cache", "scope", "variant", "tile"),
    *("median_us", "samples", "gflops", "gbytes_per_s", "percent_of_peak", "percent_of_blas"),
)
"""The columns of `--csv`, by their names in the result files."""

ORDER: dict[str, Callable[[Row], tuple[object, ...]]] = {
    "time": lambda row: (row.median_us or 0.0,),
    "rate": lambda row: (-(row.gflops or 0.0),),
    "blas": lambda row: (-(row.percent_of_blas or 0.0),),
    "name": lambda row: (row.variant, row.tile),
}


def print_files(
    files: Sequence[Path],
    *,
    sort: str | None,
    top: int | None,
    compare: bool,
    markdown: bool,
    as_csv: bool,
) -> None:
    """Print the tables of the files. Raises UsageError for files that cannot be shown so."""
    if as_csv and (markdown or compare):
        raise UsageError("--csv lists points, one a line: leave out --markdown and --compare")
    of_file = [read(path) for path in files]
    rows = [row for of_one in of_file for row in of_one]
    if not rows:
        raise UsageError(f"{files[0]}: the file has no rows")
    if as_csv:
        _print_csv(rows, sort, top)
        return
    shown: RenderableType
    if compare:
        if len(files) == 1:
            raise UsageError("--compare: give two files or more")
        shown = _side_by_side(files, of_file, sort, top)
    else:
        shown = tables(rows, sort, top)
    if markdown:
        print(_markdown(shown))
    else:
        console().print(shown)


def tables(rows: Sequence[Row], sort: str | None = None, top: int | None = None) -> RenderableType:
    """The tables after a sweep, or lists of points where an order or a number is given."""
    return _lists(rows, sort or "time", top) if sort or top else results(rows)


def _lists(rows: Sequence[Row], sort: str, top: int | None) -> Group:
    """Per problem: a row a point, with all figures."""
    parts: list[RenderableType] = []
    listed: list[Row] = []
    for of_problem in _measured(rows):
        chosen = sorted(of_problem, key=ORDER[sort])[:top]
        listed += chosen
        names: list[Column] = [
            ("variant", lambda row: row.variant),
            ("tile", lambda row: row.tile),
        ]
        grid = rows_table(chosen, [*names, *figures(of_problem[0], rows)])
        parts += [Text(f"\n{title(of_problem[0])}", style="bold"), grid]
    return Group(*parts, *remarks(listed))


def _measured(rows: Sequence[Row]) -> list[list[Row]]:
    return by_problem(row for row in rows if row.status == Status.OK)


def _side_by_side(
    files: Sequence[Path], of_file: Sequence[Sequence[Row]], sort: str | None, top: int | None
) -> Group:
    """Per problem: a row a point, a time a file, and each file's over the first one's."""
    by_key = [
        {_comparable(row): row for row in rows if row.status == Status.OK} for rows in of_file
    ]
    names = [path.stem for path in files]
    first = {key: found for rows in reversed(by_key) for key, found in rows.items()}
    parts: list[RenderableType] = []
    problems: dict[tuple[object, ...], list[tuple[object, ...]]] = {}
    for key in first:
        problems.setdefault(key[2:], []).append(key)
    for keys in problems.values():
        grid = table(
            *("variant", "tile", *names, *(f"{name} ÷ {names[0]}" for name in names[1:])),
            left={"variant", "tile"},
        )
        for key in sorted(keys, key=lambda key: ORDER[sort or "time"](first[key]))[:top]:
            of_key = [rows.get(key) for rows in by_key]
            grid.add_row(
                *map(str, key[:2]),
                *(marked(row) if row else "" for row in of_key),
                *(_ratio(row, of_key[0]) for row in of_key[1:]),
            )
        row = first[keys[0]]
        parts += [Text(f"\n{row.op} {row.size} {row.dtype}, {row.cache} cache", style="bold"), grid]
    return Group(*parts, *remarks([row for rows in by_key for row in rows.values()]))


def _ratio(row: Row | None, base: Row | None) -> str:
    """A time over another; nothing where rounds of either disagree."""
    if not row or not base or row.unstable or base.unstable or not base.median_us:
        return ""
    return number((row.median_us or 0.0) / base.median_us, 3)


def _comparable(row: Row) -> tuple[object, ...]:
    """The point, whatever device measured it."""
    return row.variant, row.tile, row.op, row.dtype, row.m, row.n, row.k, row.cache, row.scope


def _tables(shown: RenderableType) -> list[Text | Table]:
    return [part for part in getattr(shown, "renderables", ()) if isinstance(part, Text | Table)]


def _cells(grid: Table) -> list[list[str]]:
    """The heading and the rows of a table, as text."""
    columns = [
        [
            str(column.header).replace("\n", " "),
            *(getattr(cell, "plain", str(cell)).strip() for cell in column.cells),
        ]
        for column in grid.columns
    ]
    return [list(line) for line in zip(*columns, strict=True)]


def _markdown(shown: RenderableType) -> str:
    lines = []
    for part in _tables(shown):
        if isinstance(part, Text):
            text = _escaped(part.plain.strip())
            lines += ["", f"**{text}**" if part.style == "bold" else text]
            continue
        left = [column.justify == "left" for column in part.columns]
        lines += ["", *pipe_table(_cells(part), left)]
    return re.sub("\n{3,}", "\n\n", "\n".join(lines)).strip()


def _escaped(text: str) -> str:
    return re.sub(r"([|*~])", r"\\\1", text)


def _print_csv(rows: Sequence[Row], sort: str | None, top: int | None) -> None:
    """The figures of the tables as numbers, a row a point."""
    chosen = [
        row
        for of_problem in _measured(rows)
        for row in sorted(of_problem, key=ORDER[sort or "time"])[:top]
    ]
    lines = (
        [
            *(getattr(row, name) for name in FIGURES),
            None if row.half_interval is None else 100 * row.half_interval,
        ]
        for row in chosen
    )
    print(encode_csv([*FIGURES, "half_interval_percent"], lines).decode(), end="")
