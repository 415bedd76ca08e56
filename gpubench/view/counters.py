"""Tables of counters beside times."""

from collections.abc import Sequence

from rich.console import RenderableType
from rich.text import Text

from gpubench.grouping import grouped
from gpubench.results.counter_row import CounterRow
from gpubench.results.row import Row
from gpubench.view.numbers import number
from gpubench.view.row_tables import MAX_POINTS, by_problem, marked, title
from gpubench.view.tables import table

MAX_NAME = 60  # maximum number of characters of a kernel's name that a table shows


def counter_tables(rows: Sequence[Row], counters: Sequence[CounterRow]) -> list[RenderableType]:
    """Return a table for each problem that has counters, with a line for each kernel of a call.

    Counters of points that are not in `rows`, or that were measured at another time, are left out.
    """
    by_point = grouped(counters, lambda counter: (counter.key, counter.started_utc))
    counted = [row for row in rows if (row.key, row.started_utc) in by_point][:MAX_POINTS]
    parts: list[RenderableType] = []
    for points in by_problem(counted):
        of_points = [(row, by_point[row.key, row.started_utc]) for row in points]
        headings = dict.fromkeys(_heading(each) for _, alike in of_points for each in alike)
        texts = ("variant", "tile", "function")
        grid = table("variant", "tile", "time", "function", *headings, left=texts)
        for row, alike in of_points:
            for kernel, values in grouped(alike, lambda each: (each.kernel, each.function)).items():
                cells = {_heading(each): _value(each.value) for each in values}
                first = kernel[0] in {None, 1}  # later kernels are parts of the same call
                names = (row.variant, row.tile, marked(row)) if first else ("", "", "")
                name = kernel[1] or ""
                shown = name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 1]}…"
                grid.add_row(*names, shown, *(cells.get(heading, "") for heading in headings))
        parts += [Text(f"\nCounters of one call: {title(points[0])}", "bold"), grid]
    return parts


def _heading(counter: CounterRow) -> str:
    return ", ".join(filter(None, (counter.metric, counter.unit)))


def _value(value: float | None) -> str:
    return number(value, 0 if value is None or value.is_integer() else 2)
