"""Selects the kernels of compare-cublas, and shows the ladder.

A ladder is a series of kernels. Each kernel is a step, which improves the kernel before it.
"""

from collections.abc import Mapping, Sequence
from operator import attrgetter

from rich.console import Group, RenderableType

from gpubench.grouping import grouped
from gpubench.model import Status, Variant
from gpubench.plan.registry import choose, variants
from gpubench.plan.sweep import Sweep
from gpubench.results.row import Row
from gpubench.view.numbers import number
from gpubench.view.row_tables import (
    Column,
    best_of_each,
    by_problem,
    failures,
    heading,
    marked,
    remarks,
    rows_table,
)
from gpubench.view.tables import Table


def with_libraries(
    sweep: Sweep, backend: str, asked: Sequence[str], *, rivals: bool = False
) -> tuple[str, ...]:
    """Return the names of the variants to measure, including cuBLAS and tuned cuBLASLt.

    `rivals` adds the names of other libraries that a program might use instead of cuBLAS.
    """
    named = choose(sweep.op, backend, asked, sweep.kernels)
    libraries = [
        variant
        for variant in variants()
        if (variant.op, variant.backend) == (sweep.op, backend)
        and ("cublas" in {variant.name, variant.tunes} or (rivals and variant.rival))
    ]
    # The user did not name these variants, so a dtype that they lack needs no message.
    unnamed = libraries if asked else [*named, *libraries]
    fitting = [variant for variant in unnamed if set(variant.dtypes) & set(sweep.dtypes)]
    return tuple(dict.fromkeys((*asked, *(variant.name for variant in fitting))))


def steps(variants: Sequence[Variant]) -> dict[str, str]:
    """Map each step of the ladders to its predecessor, in the order of the steps.

    The first step of a ladder has an empty text as its predecessor.

    A variant is a step if it follows another variant, or if another variant follows it. The
    followers of a step come directly after it.
    """
    after = {row.name: row.after for row in variants}
    followers = grouped(filter(after.get, after), after.__getitem__)
    ordered: dict[str, str] = {}

    def climb(name: str) -> None:
        ordered[name] = after.get(name, "")
        for follower in followers.get(name, ()):
            climb(follower)

    for name in followers:
        if not after.get(name):
            climb(name)
    return ordered


def ladder_tables(rows: Sequence[Row], order: Mapping[str, str]) -> RenderableType:
    """Return a table for each problem, which has the steps in order and the gain of each step."""
    parts: list[RenderableType] = []
    for of_problem in by_problem(row for row in rows if row.status == Status.OK):
        parts += [heading(of_problem[0]), _ladder_table(of_problem, order)]
    return Group(*parts, *failures(rows), *remarks(rows, intervals=False))


def _ladder_table(rows: Sequence[Row], order: Mapping[str, str]) -> Table:
    """Return a table with the best tile of each step. Variants that are no steps come last."""
    best = best_of_each(rows)
    places = {name: place for place, name in enumerate(order)}
    ordered = sorted(best.values(), key=lambda row: places.get(row.variant, len(places)))
    columns = [
        Column("step", attrgetter("variant"), is_text=True),
        Column("best tile", attrgetter("tile"), is_text=True),
        Column("time", marked),
        Column("GFLOP/s", lambda row: number(row.gflops, 0)),
        Column("% of cuBLAS", lambda row: number(row.percent_of_blas, 1)),
        Column("gain", lambda row: _gain(row, best, order)),
        Column("registers", lambda row: str(row.registers or "")),
        Column("occupancy, %", lambda row: number(row.occupancy and 100 * row.occupancy, 0)),
    ]
    return rows_table(ordered, columns)


def _gain(row: Row, best: Mapping[str, Row], order: Mapping[str, str]) -> str:
    """Return the row's speed relative to the nearest measured step before it, such as `1.52×`."""
    before = order.get(row.variant, "")
    while before and before not in best:
        before = order.get(before, "")
    if not before or not row.median_us or not best[before].median_us:
        return ""
    return f"{(best[before].median_us or 0.0) / row.median_us:.2f}×"
