"""Rows as tables for the terminal. Reads rows and nothing else, so an old file looks the same."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from operator import attrgetter

from rich import box
from rich.console import Console, ConsoleOptions, Group, JustifyMethod, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from gpubench.backends import blas_name
from gpubench.model import OPERATIONS, Status
from gpubench.output import clean_lines
from gpubench.row import Row

PIPED_WIDTH = 160

BEST, TIED = "*", "="
"""Marks behind a time: the fastest tile of its variant, and those that may be as fast."""


def results(rows: Sequence[Row]) -> RenderableType:
    """Per problem: the tile-size table, the best of each variant, and what was not measured."""
    parts: list[RenderableType] = []
    for of_problem in by_problem(rows):
        parts.append(Text(f"\n{title(of_problem[0])}", style="bold"))
        measured = [row for row in of_problem if row.status == Status.OK]
        if edges := [row for row in measured if row.tile.isdecimal()]:
            parts.append(tile_table(edges))
        if blocks := [row for row in measured if row.tile and not row.tile.isdecimal()]:
            parts.append(tile_list(blocks))
        if measured:
            parts.append(best_table(measured))
        parts.extend(_not_measured(of_problem))
    return Group(*parts)


def tile_table(rows: Sequence[Row]) -> Table:
    """Milliseconds: tiles down, variants across; the best of each column marked, and its ties."""
    tiled = [row for row in rows if row.tile]
    variants = list(dict.fromkeys(row.variant for row in tiled))
    best = {
        variant: best_of(row for row in tiled if row.variant == variant) for variant in variants
    }
    cells = {(row.tile, row.variant): row for row in tiled}
    grid = table("tile", *(f"{variant}, ms" for variant in variants))
    for tile in sorted({row.tile for row in tiled}, key=_tile_order):
        grid.add_row(
            tile,
            *(_time_cell(cells.get((tile, variant)), best[variant]) for variant in variants),
        )
    return grid


def tile_list(rows: Sequence[Row]) -> Table:
    """Milliseconds by variant and tile: tiles of several numbers are each variant's own."""
    grid = table("variant", "tile", "ms", left={"variant", "tile"})
    by_variant = sorted(rows, key=lambda row: (row.variant, _tile_order(row.tile)))
    for variant, group in groupby(by_variant, key=lambda row: row.variant):
        of_variant = list(group)
        best = best_of(of_variant)
        for index, row in enumerate(of_variant):
            grid.add_row(variant if index == 0 else "", row.tile, _time_cell(row, best))
    return grid


def best_table(rows: Sequence[Row]) -> Table:
    """The best tile of each variant, fastest first."""
    variants = dict.fromkeys(row.variant for row in rows)
    best = [best_of(row for row in rows if row.variant == variant) for variant in variants]
    columns: list[tuple[str, Callable[[Row], str]]] = [
        ("variant", lambda row: row.variant),
        ("best tile", lambda row: ", ".join(tied_tiles(rows, row))),
        ("ms", lambda row: milliseconds(row.median_us)),
        *_rate_columns(rows[0]),
        (f"% of {blas_name(rows[0].backend)}", lambda row: number(row.percent_of_blas, 1)),
    ]
    # A column that says nothing about any row is left out: a CPU has no known peak.
    columns = [column for column in columns if any(column[1](row) for row in best)]
    grid = table(*(name for name, _ in columns), left={"variant"})
    for row in sorted(best, key=lambda row: row.median_us or 0.0):
        grid.add_row(*(value(row) for _, value in columns))
    return grid


def _rate_columns(of: Row) -> list[tuple[str, Callable[[Row], str]]]:
    """The figure of merit: bytes a second and the share of a copy where memory sets the pace."""
    if of.op in OPERATIONS and OPERATIONS[of.op].bandwidth_bound:
        return [
            ("GB/s", lambda row: number(row.gbytes_per_s, 1)),
            ("% of copy", lambda row: number(row.percent_of_copy, 1)),
        ]
    return [
        (f"G{_unit(of)}/s", lambda row: number(row.gflops, 1)),
        ("% of peak", lambda row: number(row.percent_of_peak, 1)),
    ]


def comparison(rows: Sequence[Row]) -> RenderableType:
    """Per problem: the best tile of each variant beside cuBLAS, and what was not measured.

    Where cuBLASLt was tuned too, the faster of the two libraries' products is the 100 %.
    """
    parts: list[RenderableType] = []
    for of_problem in by_problem(rows):
        parts.append(Text(f"\n{title(of_problem[0])}", style="bold"))
        if measured := [row for row in of_problem if row.status == Status.OK]:
            parts.append(best_table(measured))
        parts.extend(_not_measured(of_problem))
    return Group(*parts)


def by_problem(rows: Iterable[Row]) -> list[list[Row]]:
    """The rows of each problem; those of one may be compared."""
    problem = attrgetter("problem_key")
    return [list(group) for _, group in groupby(sorted(rows, key=problem), key=problem)]


def best_of(rows: Iterable[Row]) -> Row:
    """The fastest row."""
    return min(rows, key=lambda row: row.median_us or 0.0)


def tied_tiles(rows: Iterable[Row], best: Row) -> list[str]:
    """Tiles of the best row's variant whose intervals overlap with its own, the best first."""
    ties = [
        row.tile
        for row in rows
        if row.variant == best.variant and row.tile != best.tile and _tied(row, best)
    ]
    return [tile for tile in (best.tile, *sorted(ties, key=_tile_order)) if tile]


def milliseconds(time_us: float | None) -> str:
    """Four significant digits: `0.2753`, `57.10`, `1204`."""
    if time_us is None:
        return ""
    time_ms = time_us / 1e3
    if time_ms < 1:
        return f"{time_ms:.4f}"
    return f"{time_ms:#.4g}".rstrip(".")


def number(value: float | None, digits: int) -> str:
    """A number with so many decimals, or nothing."""
    return "" if value is None else f"{value:,.{digits}f}"


def title(row: Row) -> str:
    """A problem's headline: operation, size, dtype, device and what is not as usual."""
    cache = f", {row.cache} cache"
    scope = "" if row.scope == "kernel" else f", {row.scope}"
    timer = "" if row.timer in {"events", "host"} else f", {row.timer}"
    mode = "" if row.compute_mode == row.dtype else f" as {row.compute_mode}"
    return f"{row.op} {row.size} {row.dtype}{mode} on {row.device}{cache}{scope}{timer}"


def _unit(row: Row) -> str:
    return "op" if row.dtype.startswith("int") else "FLOP"


def _tied(row: Row, best: Row) -> bool:
    return (row.ci_low_us or 0.0) <= (best.ci_high_us or 0.0)


def _time_cell(row: Row | None, best: Row) -> Text:
    if row is None:
        return Text("")
    mark = BEST if row is best else TIED if _tied(row, best) else " "
    style = "bold green" if row is best else "green" if mark == TIED else ""
    return Text(f"{milliseconds(row.median_us)} {mark}", style=style)


def _not_measured(rows: Sequence[Row]) -> list[Text]:
    """One line a status and reason: which variants and tiles."""
    lines = []
    failed = [row for row in rows if row.status != Status.OK]
    reasons = dict.fromkeys((row.status, row.variant, row.reason) for row in failed)
    for status, variant, reason in reasons:
        tiles = [
            row.tile
            for row in failed
            if (row.status, row.variant, row.reason) == (status, variant, reason) and row.tile
        ]
        style = "yellow" if status == Status.SKIPPED else "red"
        which = f"{variant} {spans(tiles)}".strip()
        lines.append(Text(f"{status}: {which}: {reason}", style=style))
    return lines


def spans(tiles: Sequence[str]) -> str:
    """`33..64` for consecutive edges, others listed."""
    groups: list[list[str]] = []
    for tile in tiles:
        last = groups[-1][-1] if groups else ""
        if tile.isdecimal() and last.isdecimal() and int(tile) == int(last) + 1:
            groups[-1].append(tile)
        else:
            groups.append([tile])
    return ", ".join(
        group[0] if len(group) == 1 else f"{group[0]}..{group[-1]}" for group in groups
    )


def _tile_order(tile: str) -> tuple[object, ...]:
    """By the numbers of a tile, one after the other, whatever a file has there."""
    numbers = [number.lstrip("0") for number in re.findall("[0-9]+", tile)]
    return [(len(number), number) for number in numbers], tile


def table(*columns: str, left: Iterable[str] | None = ()) -> Table:
    """An empty table; columns in `left` are text, None meaning all of them."""
    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in columns:
        justify: JustifyMethod = "left" if left is None or name in left else "right"
        grid.add_column(name, justify=justify, overflow="fold")  # a cut figure is a wrong figure
    return grid


class _Console(Console):
    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """What is shown, without the control characters of names that come from files."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=clean_lines(segment.text))

    def on_broken_pipe(self) -> None:
        """Leave it to `cli.main`, instead of Rich's exit status 1."""
        raise BrokenPipeError


def console(*, stderr: bool = False) -> Console:
    """A console; elsewhere than in a terminal without colour, and wide, as nothing must fit."""
    # Text is shown as it is: a `[k]` in an idea or a `:cd:` in a file name is no markup.
    screen = _Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not screen.is_terminal and "COLUMNS" not in os.environ:
        screen.width = PIPED_WIDTH
    return screen
