"""Summarizes the results of a list of problems: the time of the whole list with each variant."""

from collections.abc import Iterable, Sequence
from operator import attrgetter

from rich.console import RenderableType
from rich.text import Text

from gpubench.grouping import grouped
from gpubench.model import PRECISIONS, Status
from gpubench.results.row import Row
from gpubench.text import counted
from gpubench.view.numbers import time_text
from gpubench.view.row_tables import UNSTABLE, UNSTABLE_LEGEND, best_of_each, is_baseline, marked
from gpubench.view.tables import table

_PROBLEM = attrgetter("numbers", "compute_mode")


def list_summaries(rows: Iterable[Row]) -> list[RenderableType]:
    """Return the tables and totals of each problem list to which rows belong.

    Return an empty list if the rows belong to no problem list.

    Rows of different conditions, such as a cold and a hot cache, have separate summaries.
    Several dtypes or layouts of a list have separate summaries, too.
    """
    listed = [row for row in rows if row.problem]
    named = [row for row in listed if row.status == Status.OK and row.median_us]
    modes: dict[tuple[object, ...], set[str]] = {}
    for row in named:
        modes.setdefault((row.problem, row.numbers), set()).add(row.compute_mode)
    split = any(len(names) > 1 for names in modes.values())
    groups = grouped(
        named, lambda row: (_conditions(row, row.host), row.compute_mode if split else "")
    )
    parts = []
    for (conditions, mode), group in groups.items():
        host = group[0].host
        problems = {
            _PROBLEM(row)
            for row in listed
            if _conditions(row, row.host or host) == conditions and mode in {"", row.compute_mode}
        }  # a skipped row has no host
        parts += _summary(group, len(problems), split=split)
    return parts


def _conditions(row: Row, host: str | None) -> tuple[object, ...]:
    precision = PRECISIONS.get(row.compute_mode)
    layout = "" if precision and precision.column_major else row.layout
    where = row.device, host, row.cache, row.launches, row.state, row.scope, row.timer
    return row.op, layout, row.operands, *where


def _summary(rows: Sequence[Row], count: int, *, split: bool) -> list[RenderableType]:
    """Return a table of best kernels, a table of total times, and the time of the whole list.

    `count` is the number of problems of the list, with or without a time.
    """
    first, best = rows[0], best_of_each(rows, _PROBLEM)
    mode = f" {first.compute_mode}" if split else ""
    problems_text = counted(len(best), "problem")
    heading = f"{problems_text}{mode} on {first.device}, {first.conditions}{first.special}"
    headings = ("problem", "size", "weight", "best kernel", "tile", "time", "weight × time")
    problems = table(*headings, left={"problem", "size", "best kernel", "tile"})
    for row in best.values():
        size, weight = row.size.replace("x", "×"), f"{row.weight or 1:g}"
        total = time_text(_total_us([row]))
        problems.add_row(row.problem, size, weight, row.variant, row.tile, marked(row), total)
    by_variant = {
        variant: list(best_of_each(of_variant, _PROBLEM).values())
        for variant, of_variant in grouped(rows, attrgetter("variant")).items()
    }
    ranked = sorted(by_variant, key=lambda variant: _total_us(by_variant[variant]))
    totals = table("kernel", "problems", "weight × time", left={"kernel"})
    for variant in ranked:
        solved = by_variant[variant]
        part = "" if len(solved) == len(best) else f" of {len(best)}"
        totals.add_row(variant, f"{len(solved)}{part}", time_text(_total_us(solved)))
    complete = [variant for variant in ranked if len(by_variant[variant]) == len(best)]
    libraries = [variant for variant in complete if all(map(is_baseline, by_variant[variant]))]
    best_total = f"{time_text(_total_us(best.values()))} with the best kernel of each problem"
    statement = f"no kernel ran the whole list; the list takes {best_total}"
    if count > len(best):
        missing = f"{count - len(best)} of {counted(count, 'problem')}"
        statement = f"no kernel ran {missing}; the others take {best_total}"
    elif complete:
        named = (libraries or complete)[0]
        statement = (
            f"this list takes {time_text(_total_us(by_variant[named]))} with {named}, {best_total}"
        )
    is_unstable = any(row.unstable for row in best.values())
    statement += f" {UNSTABLE}" if is_unstable else ""
    title = Text(f"\nthe list: {heading}", style="bold")
    legend = [Text(UNSTABLE_LEGEND, style="dim")] if is_unstable else []
    return [title, problems, Text(), totals, Text(statement, style="bold"), *legend]


def _total_us(rows: Iterable[Row]) -> float:
    return sum((row.weight or 1.0) * (row.median_us or 0.0) for row in rows)
