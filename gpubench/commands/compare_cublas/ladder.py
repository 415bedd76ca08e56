"""The ladder: kernels in order, each changing one thing of another, with what it gains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gpubench.model import Status, Variant
from gpubench.row import Row
from gpubench.view.tables import best_of, milliseconds, number, problem_of, table, title


def steps(known: Sequence[Variant]) -> dict[str, str]:
    """Every step of the ladders among the variants, in order: its name, and its predecessor's.

    A variant is a step if it follows another or is followed. A step stands behind what it follows,
    and before the steps that follow others.
    """
    after = {one.name: one.after for one in known}
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
    for problem, group in groupby(sorted(rows, key=problem_of), key=problem_of):
        of_problem = [one for one in group if one.status == Status.OK]
        if of_problem:
            parts.append(Text(f"\n{title(of_problem[0], problem)}", style="bold"))
            parts.append(ladder_table(of_problem, order))
    return Group(*parts)


def ladder_table(rows: Sequence[Row], order: Mapping[str, str]) -> Table:
    """The best tile of each step, in order; what is no step, as a library's product, last."""
    best = {
        name: best_of(one for one in rows if one.variant == name)
        for name in dict.fromkeys(one.variant for one in rows)
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
    for one in map(best.__getitem__, names):
        grid.add_row(
            one.variant,
            one.tile,
            milliseconds(one.median_us),
            number(one.gflops, 0),
            number(one.percent_of_blas, 1),
            _gain(one, best, order),
            str(one.registers or ""),
            number(None if one.occupancy is None else 100 * one.occupancy, 0),
        )
    return grid


def _gain(one: Row, best: Mapping[str, Row], order: Mapping[str, str]) -> str:
    """How many times as fast as the nearest measured step before it: `1.52×`."""
    before = order.get(one.variant, "")
    while before and before not in best:
        before = order.get(before, "")
    if not before or not one.median_us or not best[before].median_us:
        return ""
    return f"{(best[before].median_us or 0.0) / one.median_us:.2f}×"
