"""The ladder: kernels in order, each changing one thing of another, with what it gains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from operator import attrgetter

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gpubench.model import Status, Variant
from gpubench.row import Row
from gpubench.view.tables import best_of, milliseconds, number, table, title


def steps(known: Sequence[Variant]) -> dict[str, str]:
    """Every step of the ladders among the variants, in order: its name, and its predecessor's.

    A variant is a step if it follows another or is followed. A step stands behind what it follows,
    and before the steps that follow others.
    """
    after = {row.name: row.after for row in known}
    followers: dict[str, list[str]] = {}
    for name, before in after.items():
        if before:
            followers.setdefault(before, []).append(name)
    ordered: dict[str, str] = {}

    def climb(name: str) -> None:
        ordered[name] = after.get(name, "")
        for follower in followers.get(name, ()):
            climb(follower)

    for name in followers:
        if not after.get(name):
            climb(name)
    return ordered


def ladder(rows: Sequence[Row], order: Mapping[str, str]) -> RenderableType:
    """Per problem: the steps in order, each with its gain over the one it changes."""
    parts: list[RenderableType] = []
    for _, group in groupby(
        sorted(rows, key=attrgetter("problem_key")), key=attrgetter("problem_key")
    ):
        of_problem = [row for row in group if row.status == Status.OK]
        if of_problem:
            parts.append(Text(f"\n{title(of_problem[0])}", style="bold"))
            parts.append(ladder_table(of_problem, order))
    return Group(*parts)


def ladder_table(rows: Sequence[Row], order: Mapping[str, str]) -> Table:
    """The best tile of each step, in order; what is no step, as a library's product, last."""
    best = {
        name: best_of(row for row in rows if row.variant == name)
        for name in dict.fromkeys(row.variant for row in rows)
    }
    grid = table(
        *("step", "best tile", "ms", "GFLOP/s", "% of cuBLAS", "gain"),
        *("registers", "occupancy, %"),
        left={"step", "best tile"},
    )
    names = (
        *(name for name in order if name in best),
        *(name for name in best if name not in order),
    )
    for row in map(best.__getitem__, names):
        grid.add_row(
            row.variant,
            row.tile,
            milliseconds(row.median_us),
            number(row.gflops, 0),
            number(row.percent_of_blas, 1),
            _gain(row, best, order),
            str(row.registers or ""),
            number(None if row.occupancy is None else 100 * row.occupancy, 0),
        )
    return grid


def _gain(row: Row, best: Mapping[str, Row], order: Mapping[str, str]) -> str:
    """How many times as fast as the nearest measured step before it: `1.52×`."""
    before = order.get(row.variant, "")
    while before and before not in best:
        before = order.get(before, "")
    if not before or not row.median_us or not best[before].median_us:
        return ""
    return f"{(best[before].median_us or 0.0) / row.median_us:.2f}×"
