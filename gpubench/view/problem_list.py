"""The summary of a list of problems: what the whole list takes with each variant."""

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter

from rich.console import RenderableType
from rich.text import Text

from gpubench.grouping import grouped
from gpubench.model import PRECISIONS, Status
from gpubench.results.row import Row
from gpubench.view.numbers import time_text
from gpubench.view.row_tables import UNSTABLE, UNSTABLE_LEGEND, best_of_each, is_baseline, marked
from gpubench.view.tables import table

Times = Mapping[tuple[object, ...], Row]
"""The fastest row of each problem."""

_PROBLEM = attrgetter("m", "n", "k", "compute_mode")


def list_summaries(rows: Iterable[Row]) -> list[RenderableType]:
    """Return the tables and the totals of the lists that the rows belong to; often none.

    Rows of different conditions, such as the cache's, have summaries of their own. If a list is
    measured in several dtypes or layouts, so have they.
    """
    named = [row for row in rows if row.problem and row.status == Status.OK and row.median_us]
    modes: dict[tuple[object, ...], set[str]] = {}
    for row in named:
        modes.setdefault((row.problem, row.m, row.n, row.k), set()).add(row.compute_mode)
    split = any(len(names) > 1 for names in modes.values())
    groups = grouped(named, lambda row: (*_conditions(row), row.compute_mode if split else ""))
    return [part for group in groups.values() for part in _summary(group, split=split)]


def _conditions(row: Row) -> tuple[object, ...]:
    precision = PRECISIONS.get(row.compute_mode)
    layout = "" if precision and precision.column_major else row.layout
    where = row.device, row.host, row.cache, row.launches, row.state, row.scope, row.timer
    return row.op, layout, row.operands, *where


def _summary(rows: Sequence[Row], *, split: bool) -> list[RenderableType]:
    first = rows[0]
    by_variant = grouped(rows, attrgetter("variant"))
    times = {name: best_of_each(of_variant, _PROBLEM) for name, of_variant in by_variant.items()}
    best = best_of_each(rows, _PROBLEM)
    mode = f" {first.compute_mode}" if split else ""
    conditions = f", {first.conditions}{first.special}"
    heading = f"\nthe list: {len(best)} problems{mode} on {first.device}{conditions}"
    problems = table(
        *("problem", "size", "weight", "best kernel", "tile", "time", "weight × time"),
        left={"problem", "size", "best kernel", "tile"},
    )
    for row in best.values():
        size, weight = row.size.replace("x", "×"), f"{row.weight or 1:g}"
        weighted = time_text(_weighted_us(row))
        problems.add_row(row.problem, size, weight, row.variant, row.tile, marked(row), weighted)
    totals = table("kernel", "problems", "weight × time", left={"kernel"})
    for variant, total_us in sorted(_totals_us(times).items(), key=lambda item: item[1]):
        count = len(times[variant])
        whole = "" if count == len(best) else f" of {len(best)}"
        totals.add_row(variant, f"{count}{whole}", time_text(total_us))
    parts: list[RenderableType] = [Text(heading, style="bold"), problems, Text(), totals]
    parts.append(Text(_statement(times, best), style="bold"))
    if any(row.unstable for row in best.values()):
        parts.append(Text(UNSTABLE_LEGEND, style="dim"))
    return parts


def _statement(times: Mapping[str, Times], best: Times) -> str:
    """Return `this list takes 12.30 ms with cublas, 11.80 ms with the best of each`."""
    best_us = sum(map(_weighted_us, best.values()))
    mark = f" {UNSTABLE}" if any(row.unstable for row in best.values()) else ""
    complete = {
        variant: total_us
        for variant, total_us in _totals_us(times).items()
        if len(times[variant]) == len(best)
    }
    if not complete:
        each = time_text(best_us)
        return f"no kernel takes the whole list; it takes {each} with the best of each{mark}"
    libraries = [name for name in complete if all(map(is_baseline, times[name].values()))]
    named = min(libraries or complete, key=lambda name: complete[name])
    return (
        f"this list takes {time_text(complete[named])} with {named}, "
        f"{time_text(best_us)} with the best of each{mark}"
    )


def _totals_us(times: Mapping[str, Times]) -> dict[str, float]:
    return {
        variant: sum(map(_weighted_us, times_us.values())) for variant, times_us in times.items()
    }


def _weighted_us(row: Row) -> float:
    return (row.weight or 1.0) * (row.median_us or 0.0)
