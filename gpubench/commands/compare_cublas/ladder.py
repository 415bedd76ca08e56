"""What compare-cublas measures, and the ladder: kernels in order, each with what it gains."""

from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from gpubench.grouping import grouped
from gpubench.model import Status, Variant
from gpubench.plan.registry import choose, variants
from gpubench.plan.sweep import Sweep
from gpubench.results.row import Row
from gpubench.view.numbers import number
from gpubench.view.row_tables import best_of_each, by_problem, marked, remarks, title
from gpubench.view.tables import Table, table


def with_libraries(
    sweep: Sweep, backend: str, asked: Sequence[str], *, rivals: bool = False
) -> tuple[str, ...]:
    """Return the requested or default variants, and the variants of cuBLAS, also the tuned one.

    `rivals` adds other libraries that a program might use instead.
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
    """Return every step of the ladders among the variants, in order, with its predecessor.

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
    """Return a table for each problem: the steps in order, each with its gain."""
    parts: list[RenderableType] = []
    for of_problem in by_problem(row for row in rows if row.status == Status.OK):
        parts.append(Text(f"\n{title(of_problem[0])}", style="bold"))
        parts.append(_ladder_table(of_problem, order))
    return Group(*parts, *remarks(rows))


def _ladder_table(rows: Sequence[Row], order: Mapping[str, str]) -> Table:
    """Return the best tile of each step, in order, followed by variants that are not steps."""
    best = best_of_each(rows)
    grid = table(
        *("step", "best tile", "time", "GFLOP/s", "% of cuBLAS", "gain"),
        *("registers", "occupancy, %"),
        left={"step", "best tile"},
    )
    place = {name: position for position, name in enumerate(order)}
    for row in sorted(best.values(), key=lambda row: place.get(row.variant, len(place))):
        grid.add_row(
            row.variant,
            row.tile,
            marked(row),
            number(row.gflops, 0),
            number(row.percent_of_blas, 1),
            _gain(row, best, order),
            str(row.registers or ""),
            number(None if row.occupancy is None else 100 * row.occupancy, 0),
        )
    return grid


def _gain(row: Row, best: Mapping[str, Row], order: Mapping[str, str]) -> str:
    """Return the speed relative to the nearest measured step before it: `1.52×`."""
    before = order.get(row.variant, "")
    while before and before not in best:
        before = order.get(before, "")
    if not before or not row.median_us or not best[before].median_us:
        return ""
    return f"{(best[before].median_us or 0.0) / row.median_us:.2f}×"
