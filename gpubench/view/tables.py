"""Rows as tables for the terminal. Reads rows and nothing else, so an old file looks the same."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import IO

from rich import box
from rich.console import Console, ConsoleOptions, Group, JustifyMethod, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from gpubench.backends import blas_name
from gpubench.model import OPERATIONS, Status
from gpubench.results.row import STABLE, Row
from gpubench.text import clean_lines

PIPED_WIDTH = 160

NAIVE_LOOP = "cpu_naive"
"""The baseline of published speed-ups: one thread, no blocking."""

Column = tuple[str, Callable[[Row], str]]
"""A heading, and what a row shows under it."""

BEST, TIED, UNSTABLE, IMPRECISE = "*", "=", "!", "~"
"""Marks behind a time: the fastest tile of its variant, those that may be as fast, those whose
rounds disagree, and those whose interval is wider than `--precision` asks."""

DISAGREE = f"rounds differ by more than {100 * (STABLE - 1):.0f} %"
UNSTABLE_LEGEND = f"{UNSTABLE} {DISAGREE}: no ratio or claim may rest on this figure"

LEGEND = {
    BEST: "fastest tile of its kernel",
    TIED: "may be as fast: its interval overlaps with the fastest one's",
    IMPRECISE: "missed --precision",
    UNSTABLE: UNSTABLE_LEGEND.removeprefix(f"{UNSTABLE} "),
}

FEWEST_SAMPLES = 6
"""Under six samples no interval covers 95 % of medians, so none is shown."""

COARSE = 10
"""Percent; an interval from here on needs no decimals."""

LONGEST_TILES = 40
"""Letters of a cell with several tiles: longer ones break in the middle of a tile."""

WHOLE = 1000
"""Rates from here on need no decimals."""

POWER_OF_TWO = 512
"""From this size on, the columns of a row-major matrix of 2ⁿ columns share few cache sets."""


def results(rows: Sequence[Row]) -> RenderableType:
    """Per problem: the tile-size table, the best of each variant, and what was not measured.

    Below, what the marks mean, and what should be known before the figures are used.
    """
    parts: list[RenderableType] = []
    for of_problem in by_problem(rows):
        parts.append(Text(f"\n{title(of_problem[0])}", style="bold"))
        measured = [row for row in of_problem if row.status == Status.OK]
        if edges := [row for row in measured if row.tile.isdecimal()]:
            parts += [Text(), tile_table(edges)]
        if blocks := [row for row in measured if row.tile and not row.tile.isdecimal()]:
            parts += [Text(), tile_list(blocks)]
        if measured:
            parts += [Text(), best_table(measured, rows)]
        parts.extend(_not_measured(of_problem))
    return Group(*parts, *remarks(rows, tiles=True))


def remarks(rows: Sequence[Row], *, tiles: bool = False) -> list[Text]:
    """The legend of the marks that tables of these rows have, and remarks on what they show.

    With `tiles` the tables are of a kernel's tiles, of which the best are marked.
    """
    measured = [row for row in rows if row.status == Status.OK]
    marks = {_doubt(row) for row in measured}
    if tiles:
        kernels: dict[tuple[object, ...], list[Row]] = {}
        for row in measured:
            kernels.setdefault((*row.problem_key, row.variant), []).append(row)
        for of_kernel in kernels.values():
            best = best_of(of_kernel)
            marks |= {_place(row, best) for row in of_kernel if row.tile}
    lines = ["; ".join(f"{mark} {text}" for mark, text in LEGEND.items() if mark in marks)]
    if missed := [row for row in measured if row.missed_precision]:
        lines.append(
            f"{len(missed)} of {len(measured)} points missed --precision ({IMPRECISE}): use more "
            "--rounds, or a machine without other work"
        )
    loops = [row for row in measured if row.variant == NAIVE_LOOP and _power_of_two(row)]
    if loops and len(measured) > len(loops):
        lines.append(
            f"{NAIVE_LOOP} at a power of two is slow by itself, as the elements it reads share few "
            "cache sets: speed-ups over it flatter there"
        )
    lines += dict.fromkeys(f"{row.variant}: {row.notes}" for row in measured if row.notes)
    lines = list(filter(None, [*lines, *_contradicting(measured), _devices_differ(measured)]))
    return [Text(f"\n{line}" if line is lines[0] else line, style="dim") for line in lines]


def _devices_differ(rows: Sequence[Row]) -> str:
    """What a sweep's devices differ by, where it was shared among several; else nothing."""
    speeds = {
        f"{row.host} {row.slot}": row.percent_of_devices
        for row in rows
        if row.percent_of_devices is not None
    }
    if len(speeds) < 2:  # noqa: PLR2004 # one differs from none
        return ""
    slowest, fastest = min(speeds.values()), max(speeds.values())
    listed = ", ".join(f"{name} {speed:.1f} %" for name, speed in sorted(speeds.items()))
    return (
        f"measured on {len(speeds)} devices, which differ by {100 * (fastest / slowest - 1):.1f} % "
        f"at the points they have in common: {listed} of the median device's speed"
    )


def _contradicting(rows: Iterable[Row]) -> list[str]:
    """Baselines of which the parallel one is slower than that of one thread."""
    by_name = {(row.variant, row.tile, *row.problem_key): row for row in rows}
    lines = []
    for name, row in by_name.items():
        one = by_name.get((row.variant.removesuffix(PARALLEL), *name[1:]))
        times = (row.median_us or 0.0) / (one.median_us or 1.0) if one else 0.0
        if one and times > CONTRADICTS:
            lines.append(
                f"{row.label} takes {times:.2g} times as long as {one.variant} on one thread: "
                "trust no percentage of either here"
            )
    return lines


PARALLEL, CONTRADICTS = "_parallel", 1.25
"""How the name of a baseline on several threads ends; slower by this factor, it is disturbed."""


def _power_of_two(row: Row) -> bool:
    return row.n >= POWER_OF_TWO and row.n & (row.n - 1) == 0


def tile_table(rows: Sequence[Row]) -> Table:
    """Times: tiles down, variants across; the best of each column marked, and its ties."""
    tiled = [row for row in rows if row.tile]
    variants = list(dict.fromkeys(row.variant for row in tiled))
    best = {
        variant: best_of(row for row in tiled if row.variant == variant) for variant in variants
    }
    cells = {(row.tile, row.variant): row for row in tiled}
    grid = table("tile", *variants)
    for tile in sorted({row.tile for row in tiled}, key=_tile_order):
        grid.add_row(
            tile,
            *(_time_cell(cells.get((tile, variant)), best[variant]) for variant in variants),
        )
    return grid


def tile_list(rows: Sequence[Row]) -> Table:
    """Times by variant and tile: tiles of several numbers are each variant's own."""
    grid = table("variant", "tile", "time", "±", left={"variant", "tile"})
    by_variant = sorted(rows, key=lambda row: (row.variant, _tile_order(row.tile)))
    for variant, group in groupby(by_variant, key=lambda row: row.variant):
        of_variant = list(group)
        best = best_of(of_variant)
        for index, row in enumerate(of_variant):
            name = variant if index == 0 else ""
            grid.add_row(name, row.tile, _time_cell(row, best), uncertainty(row))
    return grid


def best_table(rows: Sequence[Row], all_rows: Sequence[Row] = ()) -> Table:
    """The best tile of each variant, fastest first; speed-ups over the loop in `all_rows`."""
    variants = dict.fromkeys(row.variant for row in rows)
    best = [best_of(row for row in rows if row.variant == variant) for variant in variants]
    names: list[Column] = [
        ("variant", lambda row: row.variant),
        ("best tile", lambda row: _fastest_tiles(tied_tiles(rows, row))),
    ]
    best.sort(key=lambda row: row.median_us or 0.0)
    return rows_table(best, [*names, *figures(rows[0], all_rows or rows)])


def _fastest_tiles(tiles: Sequence[str]) -> str:
    """Tiles that may be equally fast; of long ones the first, and how many more."""
    text = ", ".join(tiles)
    return text if len(text) <= LONGEST_TILES else f"{tiles[0]} (+{len(tiles) - 1})"


def rows_table(rows: Sequence[Row], columns: Sequence[Column]) -> Table:
    """A line a row, without columns that say nothing about any: a peak may not be known."""
    shown = [column for column in columns if any(column[1](row) for row in rows)]
    grid = table(*(name for name, _ in shown), left={"variant", "tile", "best tile"})
    for row in rows:
        grid.add_row(*(value(row) for _, value in shown))
    return grid


def figures(of: Row, rows: Sequence[Row]) -> list[Column]:
    """The columns that say how fast a row is: time, rate, and shares of what is possible.

    A rate is of bytes, and its share one of a copy, where memory sets the pace.
    """
    loops = {_size_key(row): row for row in rows if row.variant == NAIVE_LOOP and row.median_us}
    if of.op in OPERATIONS and OPERATIONS[of.op].bandwidth_bound:
        rates: list[Column] = [
            ("GB/s", lambda row: rate(row.gbytes_per_s)),
            ("% of copy", lambda row: number(row.percent_of_copy, 1)),
        ]
    else:
        rates = [
            (f"G{_unit(of)}/s", lambda row: rate(row.gflops)),
            ("% of peak", lambda row: number(row.percent_of_peak, 1)),
        ]

    def speed_up(row: Row) -> str:
        loop = loops.get(_size_key(row))
        times = loop and loop.median_us and row.median_us and loop.median_us / row.median_us
        return f"{times:,.3g}" if times and row is not loop else ""

    return [
        ("time", marked),
        ("±", uncertainty),
        *rates,
        (f"% of {blas_name(of.backend)}", lambda row: number(row.percent_of_blas, 1)),
        (f"× {NAIVE_LOOP}", speed_up),
        *(SUSTAINED if of.state == "sustained" else ()),
    ]


SUSTAINED: tuple[Column, ...] = (
    ("MHz", lambda row: number(row.sm_mhz, 0)),
    ("% of peak at it", lambda row: number(row.percent_of_peak_at_clock, 1)),
    ("W", lambda row: number(row.power_w, 0)),
    ("pJ/op", lambda row: rate(row.pj_per_operation)),
)
"""What limits a long run: the clock that power leaves, and the energy of an operation."""


def _size_key(row: Row) -> tuple[object, ...]:
    return row.op, row.dtype, row.m, row.n, row.k


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
    return Group(*parts, *remarks(rows))


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


def time_text(time_us: float | None) -> str:
    """Four significant digits with their unit: `275.3 µs`, `57.10 ms`, `1.204 s`."""
    if time_us is None:
        return ""
    factor, unit = next(
        (entry for entry in ((1e6, "s"), (1e3, "ms")) if time_us >= entry[0]), (1.0, "µs")
    )
    return f"{f'{time_us / factor:#.4g}'.rstrip('.')} {unit}"


def uncertainty(row: Row) -> str:
    """Half the 95 % interval of the median: `0.3 %`; with too few samples for one, how many."""
    if row.half_interval is None:
        return ""
    if (row.samples or 0) < FEWEST_SAMPLES:
        return f"{row.samples} samples"
    percentage = 100 * row.half_interval
    return f"{percentage:,.0f} %" if percentage >= COARSE else f"{percentage:.2g} %"


def milliseconds(time_us: float | None) -> str:
    """Four significant digits: `0.2753`, `57.10`, `1204`."""
    if time_us is None:
        return ""
    time_ms = time_us / 1e3
    if time_ms < 1:
        return f"{time_ms:.4f}"
    return f"{time_ms:#.4g}".rstrip(".")


def counted(count: int, noun: str) -> str:
    """`1 point`, `2 points`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def number(value: float | None, digits: int) -> str:
    """A number with so many decimals, or nothing."""
    return "" if value is None else f"{value:,.{digits}f}"


def rate(value: float | None) -> str:
    """Four digits or more: `0.55`, `94.40`, `1,204`, `55,842`."""
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= WHOLE else f"{value:.4g}"


def title(row: Row) -> str:
    """A problem's headline: operation, size, dtype, device and what is not as usual."""
    cache = f", {row.cache} cache{'' if row.state == 'burst' else f', {row.state}'}"
    scope = "" if row.scope == "kernel" else f", {row.scope}"
    timer = "" if row.timer in {"events", "host"} else f", {row.timer}"
    mode = "" if row.compute_mode == row.dtype else f" as {row.compute_mode}"
    layout = "" if row.layout == "row-major" else f", {row.layout}"
    return f"{row.op} {row.size} {row.dtype}{mode} on {row.device}{cache}{scope}{timer}{layout}"


def _unit(row: Row) -> str:
    return "op" if row.dtype.startswith("int") else "FLOP"


def _tied(row: Row, best: Row) -> bool:
    """Whether the intervals overlap; rows of fewer than three rounds have none."""
    low_us, high_us = row.ci_low_us, best.ci_high_us
    return low_us is not None and high_us is not None and low_us <= high_us


def marked(row: Row, text: Callable[[float | None], str] = time_text) -> str:
    """The time, with a mark if it is in doubt: `1.204 ms`, `1.204 ms !`."""
    return f"{text(row.median_us)} {_doubt(row)}".strip()


def _doubt(row: Row) -> str:
    return UNSTABLE if row.unstable else IMPRECISE if row.missed_precision else " "


def _place(row: Row, best: Row) -> str:
    return BEST if row is best else TIED if _tied(row, best) else " "


def _time_cell(row: Row | None, best: Row) -> Text:
    if row is None:
        return Text("")
    place = _place(row, best)
    style = "bold green" if row is best else "green" if place == TIED else ""
    return Text(f"{time_text(row.median_us)} {place}{_doubt(row)}", style=style)


def _not_measured(rows: Sequence[Row]) -> list[Text]:
    """One line a status and reason: which variants and tiles. An `ok` row may have a reason too."""
    lines = []
    failed = [row for row in rows if row.reason or row.status != Status.OK]
    reasons = dict.fromkeys((row.status, row.variant, row.reason) for row in failed)
    for status, variant, reason in reasons:
        tiles = [
            row.tile
            for row in failed
            if (row.status, row.variant, row.reason) == (status, variant, reason) and row.tile
        ]
        style = "yellow" if status in {Status.SKIPPED, Status.ELIMINATED} else "red"
        of = f"{len(tiles)} tiles" if status == Status.ELIMINATED else spans(tiles)
        which = f"{variant} {of}".strip()
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
    """An empty table; columns in `left` are text, None meaning all of them.

    Text may be folded, but a variant's name and figures never are: half a figure is a wrong one.
    """
    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    for name in columns:
        of_text = left is None or name in left
        justify: JustifyMethod = "left" if of_text else "right"
        heading = name if of_text else _BREAK.sub("\n", name, count=1)
        fixed = not of_text or name == "variant"
        grid.add_column(heading, justify=justify, overflow="fold", no_wrap=fixed)
    return grid


def pipe_table(lines: Sequence[Sequence[str]], left: Sequence[bool]) -> list[str]:
    """The lines of a Markdown table: the heading first; columns that are not `left` are numbers."""
    rule = ["---" if of_text else "---:" for of_text in left]
    escaped = [[re.sub(r"([|*~])", r"\\\1", cell) for cell in line] for line in lines]
    return [f"| {' | '.join(line)} |" for line in (escaped[0], rule, *escaped[1:])]


_BREAK = re.compile(r"(?<=^% of) |(?<=^×) ")
"""Where a heading goes on below, as its figures are short: `% of peak`."""


class _Console(Console):
    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """What is shown, without the control characters of names that come from files."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=clean_lines(segment.text))


def console(file: IO[str] | None = None, *, stderr: bool = False) -> Console:
    """A console; elsewhere than in a terminal without colour, tables wide, and text a line each.

    It prints to stdout, stderr or a file.
    """
    # Text is shown as it is: a `[k]` in an idea or a `:cd:` in a file name is not markup.
    screen = _Console(
        file=file,
        stderr=stderr,
        force_terminal=None if file is None else False,
        highlight=False,
        markup=False,
        emoji=False,
    )
    if not screen.is_terminal and "COLUMNS" not in os.environ:
        screen.width = PIPED_WIDTH
        screen.soft_wrap = True
    return screen
