"""The screen of compare-cublas: tables that fit on a screen, the pairs, and sentences."""

from collections.abc import Sequence
from itertools import chain, groupby

from rich.console import RenderableType
from rich.text import Text

from gpubench.commands.compare_cublas.sustained_pairs import pairs_table
from gpubench.model import PRECISIONS, Status
from gpubench.plan.registry import libraries
from gpubench.results.row import Row
from gpubench.text import counted
from gpubench.view.problem_list import list_summaries
from gpubench.view.row_tables import (
    NAMES,
    Column,
    best_of_each,
    by_problem,
    fastest_first,
    figures,
    filled,
    not_measured,
    remarks,
    results,
)
from gpubench.view.sentences import sentences
from gpubench.view.tables import Table, table

SCREEN_LINES = 43
"""Lines of a screen for the variants of all problems, their headings and their sentences."""

PROBLEM_LINES, MIN_LISTED = 4, 2
"""Lines of a problem beside its variants (a heading, an empty line, a sentence of two lines), and
the minimum number of variants to list: the fastest kernel and the fastest library."""

PEAK = "% of peak"
"""The column that the table of all problems leaves out, so that it fits on 80 columns."""

TILE_WIDTH = 18
"""Maximum width of a tile where variants are left out. The CSV has the whole tile."""


def screen(rows: Sequence[Row], ladder: RenderableType | None = None) -> list[RenderableType]:
    """Return what the command shows. `ladder` replaces the tables of the problems.

    If the tables of several problems do not fit on a screen, one table has the fastest variants of
    each problem.
    """
    problems = by_problem(row for row in rows if row.status == Status.OK)
    ranked = [fastest_first(best_of_each(of_problem).values()) for of_problem in problems]
    most = max(MIN_LISTED, SCREEN_LINES // max(1, len(ranked)) - PROBLEM_LINES)
    slower = sum(max(0, len(best) - most) for best in ranked)
    too_long = len(ranked) > 1 and slower > 0 and not ladder
    parts: list[RenderableType]
    if too_long:
        kept = [_fastest(best, most) for best in ranked]
        failed = [row for row in rows if row.status not in {Status.OK, Status.SKIPPED}]
        parts = [*_sections(kept), *not_measured(failed), *remarks(list(chain(*kept)))]
        parts.append(Text(f"{counted(slower, 'slower line')} left out: gpubench show FILE"))
    else:
        parts = [ladder or results(rows, tiles=False)]
    parts += list_summaries(rows)
    if grid := pairs_table(rows):
        parts += [
            Text("\nin turns at the power limit: speed relative to the fastest library"),
            grid,
        ]
    return [*parts, *sentences(rows, tiles=not too_long)]


def _fastest(best: Sequence[Row], most: int) -> list[Row]:
    """Return the fastest rows of a problem, with its fastest library among them."""
    library = next((row for row in best if row.variant in libraries()), None)
    if library is None or library in best[:most]:
        return list(best[:most])
    return [*best[: most - 1], library]


def _sections(problems: Sequence[Sequence[Row]]) -> list[RenderableType]:
    """Return a table for the problems of each condition, with a section for each problem."""
    parts: list[RenderableType] = []
    for conditions, group in groupby(problems, key=lambda rows: _conditions(rows[0])):
        parts += [Text(f"\n{conditions}", style="bold"), _section_table(list(group))]
    return parts


def _section_table(problems: Sequence[Sequence[Row]]) -> Table:
    rows = list(chain(*problems))
    tile = Column("best tile", lambda row: shortened(row.tile), is_text=True)
    columns = filled(rows, [NAMES[0], tile, *figures(rows[0], rows)])
    columns = [column for column in columns if column.title != PEAK]
    titles = [column.title for column in columns]
    grid = table(*titles, left={column.title for column in columns if column.is_text})
    for place, of_problem in enumerate(problems):
        if place:
            grid.add_row(*[""] * len(columns))
        grid.add_row(Text(_section(of_problem[0]), style="bold"), *[""] * (len(columns) - 1))
        for row in of_problem:
            grid.add_row(*(column.text(row) for column in columns))
    return grid


def _conditions(row: Row) -> str:
    """Return what problems have in common in a table: `gemm on NVIDIA H200, cold cache`."""
    return f"{row.op} on {row.device}, {row.conditions}"


def _section(row: Row) -> str:
    """Return `1024 bfloat16`, with the operands where they are not the default."""
    precision = PRECISIONS.get(row.compute_mode)
    fixed = precision and precision.column_major and row.operands == "uniform"
    name = f"{row.problem} ({row.size})" if row.problem else row.size
    return f"{name} {row.compute_mode}{'' if fixed else row.special}"


def shortened(tile: str) -> str:
    """Return `128x256x64/s4/…` for a tile that is wider than its column."""
    if len(tile) <= TILE_WIDTH:
        return tile
    return f"{tile[:TILE_WIDTH].rpartition('/')[0] or tile[: TILE_WIDTH - 2]}/…"
