"""Shows result files as the tables of a sweep, as lists of points, or side by side."""

import json
import math
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path

from rich.console import Group, RenderableType
from rich.text import Text

from gpubench import __version__
from gpubench.errors import UsageError
from gpubench.grouping import grouped
from gpubench.model import PointKey, Status
from gpubench.results.build_row import BuildRow
from gpubench.results.counter_row import counters_path, read
from gpubench.results.row import Row, objects
from gpubench.text import clean
from gpubench.view.counters import counter_tables
from gpubench.view.numbers import number
from gpubench.view.problem_list import list_summaries
from gpubench.view.row_tables import (
    MAX_POINTS,
    NAMES,
    by_problem,
    failures,
    figures,
    heading,
    marked,
    problem_name,
    remarks,
    results,
    rows_table,
    too_many,
)
from gpubench.view.sentences import sentences
from gpubench.view.tables import table

ORDER: dict[str, Callable[[Row], tuple[object, ...]]] = {
    "time": lambda row: (math.inf if row.median_us is None else row.median_us,),
    "rate": lambda row: (-(row.gflops or 0.0),),
    "blas": lambda row: (-(row.percent_of_blas or 0.0),),
    "name": lambda row: (row.variant, row.tile),
}


def as_json(rows: Sequence[Row], version: int) -> bytes:
    """Return rows as JSON in this version of the format, which docs/schema describes."""
    document = {"format": version, "gpubench": __version__, "rows": objects(rows)}
    return f"{json.dumps(document, indent=1, ensure_ascii=False)}\n".encode()


def result_tables(
    files: Sequence[Path], sides: Sequence[Sequence[Row]], sort: str | None, top: int | None
) -> list[RenderableType]:
    """Return the tables of files. Files with a point in common are shown side by side."""
    rows = list(chain(*sides))
    if not rows:
        raise UsageError(f"{files[0]}: the file has no rows")
    points = [{row.key for row in side} for side in sides]
    if len(set().union(*points)) < sum(map(len, points)):
        stems = [path.stem for path in files]
        names = [clean(path.stem if stems.count(path.stem) == 1 else str(path)) for path in files]
        return side_by_side(names, sides, sort, top).renderables
    return tables(rows, sort, top).renderables


def tables_of_counters(
    files: Sequence[Path], sides: Sequence[Sequence[Row]], sort: str | None, top: int | None
) -> list[RenderableType]:
    """Return the tables of the counters that sweeps wrote beside the files."""
    parts: list[RenderableType] = []
    for path, rows in zip(map(counters_path, files), sides, strict=True):
        if path.is_file():
            listed = [*chain(*_listed(rows, sort, top))] if sort or top else rows
            of_file = counter_tables(listed, read(path))
            parts += [Text(f"\n{path}:"), *of_file] if of_file and files[1:] else of_file
    return parts


def tables(rows: Sequence[Row], sort: str | None = None, top: int | None = None) -> Group:
    """Return the tables that a sweep prints, or lists of points if `sort` or `top` is given."""
    if not (sort or top):
        return Group(*results(rows).renderables, *list_summaries(rows), *sentences(rows))
    problems = _listed(rows, sort, top)
    listed = list(chain(*problems))
    if len(listed) > MAX_POINTS:
        return Group(too_many(listed))
    parts: list[RenderableType] = []
    for points in problems:
        parts += [heading(points[0]), rows_table(points, [*NAMES, *figures(points[0], rows)])]
    return Group(*parts, *failures(rows), *remarks(listed))


def _listed(rows: Sequence[Row], sort: str | None, top: int | None) -> list[list[Row]]:
    """Return the first points of each problem, in the order of `sort` or by time."""
    by_size = by_problem(row for row in rows if row.status == Status.OK)
    return [sorted(points, key=ORDER[sort or "time"])[:top] for points in by_size]


_BUILD: dict[str, Callable[[BuildRow], str]] = {
    "variant": lambda row: row.variant,
    "tile": lambda row: row.tile,
    "launch": lambda row: str(row.launch) if row.launch > 1 else "",
    "regs": lambda row: _whole(row.registers),
    "spill bytes": lambda row: _whole(row.spill_bytes),
    "shared bytes": lambda row: _whole(
        None
        if row.static_shared_bytes is None
        else row.static_shared_bytes + (row.dynamic_shared_bytes or 0)
    ),
    "occ. %": lambda row: number(row.occupancy and 100 * row.occupancy, 0),
    "waves": lambda row: number(row.waves, 2),
    "sectors × least": lambda row: number(row.sectors_over_least, 2),
    "bank ways": lambda row: number(row.bank_conflict_ways, 2),
    "": lambda row: row.reason or "",
}


def _whole(value: int | None) -> str:
    return "" if value is None else str(value)


def build_tables(rows: Sequence[BuildRow]) -> list[RenderableType]:
    """Return a table for each operation, type and architecture of a build file."""
    parts: list[RenderableType] = []
    for (op, dtype, arch), alike in grouped(
        rows, lambda row: (row.op, row.dtype, row.architecture)
    ).items():
        columns = {name: cell for name, cell in _BUILD.items() if any(map(cell, alike))}
        grid = table(
            *(name.replace(" ", "\n", 1) for name in columns), left={"variant", "tile", ""}
        )
        for row in alike:
            grid.add_row(*(cell(row) for cell in columns.values()))
        parts += [Text(f"\n{op} {dtype}, compiled for {arch}", "bold"), grid]
    return parts


def side_by_side(
    names: Sequence[str], sides: Sequence[Sequence[Row]], sort: str | None, top: int | None
) -> Group:
    """Return a table for each problem, with a line for each point.

    A line has the point's time in each file, and the ratios to the time in the first file.
    """
    times = [{row.key: row for row in rows if row.status == Status.OK} for rows in sides]
    first: dict[PointKey, Row] = {}
    for key, row in chain.from_iterable(side.items() for side in times):
        first.setdefault(key, row)
    problems = grouped(first, lambda key: key._replace(variant="", tile=""))
    if sum(len(keys[:top]) for keys in problems.values()) > MAX_POINTS:
        return Group(too_many(list(chain(*sides))))
    parts: list[RenderableType] = []
    for keys in problems.values():
        ratios = (f"{name} ÷ {names[0]}" for name in names[1:])
        grid = table("variant", "tile", *names, *ratios, left={"variant", "tile"})
        for key in sorted(keys, key=lambda key: ORDER[sort or "time"](first[key]))[:top]:
            rows = [side.get(key) for side in times]
            cells = (marked(row) if row else "" for row in rows)
            grid.add_row(key.variant, key.tile, *cells, *(_ratio(row, rows[0]) for row in rows[1:]))
        problem = first[keys[0]]
        name = f"{problem_name(problem)}, {problem.conditions}{problem.special}"
        parts += [Text(f"\n{name}", style="bold"), grid]
    every = [row for side in times for row in side.values()]
    return Group(*parts, *failures(chain(*sides)), *remarks(every, intervals=False))


def _ratio(row: Row | None, base: Row | None) -> str:
    """Return the ratio of two times, or an empty text if the rounds of either time disagree."""
    if not row or not base or row.unstable or base.unstable or not base.median_us:
        return ""
    return number((row.median_us or 0.0) / base.median_us, 3)
