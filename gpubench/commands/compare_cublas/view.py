"""Makes the output of compare-cublas: tables that fit on a screen, the pairs, and sentences."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

from rich.console import RenderableType
from rich.text import Text

from gpubench.commands.compare_cublas.sustained_pairs import is_library, pairs_table
from gpubench.grouping import grouped
from gpubench.model import PRECISIONS, Status
from gpubench.results.row import Row
from gpubench.view.numbers import number, rate
from gpubench.view.problem_list import list_summaries
from gpubench.view.row_tables import (
    NAMES,
    Column,
    best_of_each,
    by_problem,
    fastest_first,
    marked,
    not_measured,
    remarks,
    results,
    rows_table,
)
from gpubench.view.sentences import sentences

SCREEN_LINES = 43
"""Maximum number of lines in the tables for several problems. Instead of more lines, a single table
with the fastest variants is shown."""

SHORT = (
    Column("size", lambda row: row.problem or row.size, is_text=True),
    Column("mode", lambda row: row.compute_mode, is_text=True),
    NAMES[0],
    Column("time", marked),
    Column("GFLOP/s", lambda row: rate(row.gflops)),
    Column("% of cuBLAS", lambda row: number(row.percent_of_blas, 1)),
)
"""Columns of a table that lists several problems."""


def screen(rows: Sequence[Row], ladder: RenderableType | None = None) -> list[RenderableType]:
    """Return the command's output. `ladder` replaces the tables of the problems.

    If the tables of several problems do not fit on a screen, one table has the fastest kernel and
    the fastest library of each problem.
    """
    problems = by_problem(row for row in rows if row.status == Status.OK)
    variants = sum(len(best_of_each(of_problem)) for of_problem in problems)
    too_long = len(problems) > 1 and variants > SCREEN_LINES and not ladder
    parts: list[RenderableType] = []
    if too_long:
        # The fastest kernel and the fastest library of each problem, the faster of the two first.
        both = (best_of_each(of_problem, is_library).values() for of_problem in problems)
        kept = list(chain(*map(fastest_first, both)))
        for conditions, group in grouped(kept, _conditions).items():
            parts += [Text(f"\n{conditions}", style="bold"), rows_table(group, SHORT)]
        failed = [row for row in rows if row.status not in {Status.OK, Status.SKIPPED}]
        parts += [*not_measured(failed), *remarks(kept, intervals=False)]
        parts.append(
            Text(
                f"only the fastest of {variants} rows are shown: gpubench show FILE shows all rows"
            )
        )
    else:
        parts.append(ladder or results(rows, tiles=False))
    parts += list_summaries(rows)
    if grid := pairs_table(rows):
        parts += [
            Text("\nmeasured in turns at the power limit: speed relative to the fastest library"),
            grid,
        ]
    return [*parts, *sentences(rows, tiles=not too_long)]


def _conditions(row: Row) -> str:
    """Return the conditions of a table's problems, such as `gemm on NVIDIA H200, cold cache`."""
    precision = PRECISIONS.get(row.compute_mode)
    if precision and precision.column_major:  # such a precision has no other layout
        row = replace(row, layout="row-major")
    return f"{row.op} on {row.device}, {row.conditions}{row.special}"
