"""Tables of counters beside times."""

from collections.abc import Sequence

from rich.console import RenderableType
from rich.text import Text

from gpubench.grouping import grouped
from gpubench.results.counter_row import CounterRow
from gpubench.results.row import Row
from gpubench.view.numbers import number
from gpubench.view.row_tables import MAX_POINTS, by_problem, marked, title, too_many
from gpubench.view.tables import table

MAX_NAME = 200  # maximum number of characters of a kernel's name that is shown


def counter_tables(rows: Sequence[Row], counters: Sequence[CounterRow]) -> list[RenderableType]:
    """Return a table for each problem that has counters, with a line for each kernel of a call.

    The names of kernels that are not named like their variant follow, in the order of the launches.
    Counters of points that are not in `rows`, or that were measured at another time, are left out.
    """
    by_point = grouped(counters, lambda counter: (counter.key, counter.started_utc))
    counted = [row for row in rows if (row.key, row.started_utc) in by_point]
    if len(counted) > MAX_POINTS:
        return [too_many(counted)]
    parts: list[RenderableType] = []
    for points in by_problem(counted):
        of_points = [(row, by_point[row.key, row.started_utc]) for row in points]
        headings = dict.fromkeys(_heading(each) for _, alike in of_points for each in alike)
        texts = ("variant", "tile") if any(row.tile for row in points) else ("variant",)
        grid = table(*texts, "time", *headings, left=texts)
        names: list[str] = []
        for row, alike in of_points:
            kernels = grouped(alike, lambda each: (each.kernel, each.function))
            for place, values in enumerate(kernels.values(), start=1):
                cells = {_heading(each): _value(each.value) for each in values}
                point = (row.variant, row.tile) if place == 1 else (f"  kernel {place}", "")
                time = marked(row) if place == 1 else ""
                figures = (cells.get(heading, "") for heading in headings)
                grid.add_row(*point[: len(texts)], time, *figures)
            functions = [function or "" for _, function in kernels]
            if any(name.partition("<")[0] != row.variant for name in functions):
                call = " ".join(filter(None, (row.variant, row.tile)))
                names.append(f"{call} launches {', then '.join(map(_cut, functions))}")
        parts += [Text(f"\nCounters of one call: {title(points[0])}", "bold"), grid]
        if names:
            parts += [Text(), *map(Text, names)]
    return parts


def _heading(counter: CounterRow) -> str:
    return ", ".join(filter(None, (counter.metric, counter.unit)))


def _cut(name: str) -> str:
    return name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 1]}…"


def _value(value: float | None) -> str:
    return number(value, 0 if value is None or value.is_integer() else 2)
