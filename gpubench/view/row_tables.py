"""Makes the tables of measured rows for several commands, and the remarks below the tables."""

import math
import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from gpubench.grouping import grouped
from gpubench.model import OPERATIONS, Status, Timing
from gpubench.results.row import STABLE, Row
from gpubench.text import counted, digits
from gpubench.view.numbers import number, rate, spans, tile_order, time_text
from gpubench.view.tables import Table, table

_FREE = re.compile(r"but only [\d,]+ are free")  # in the reason of a point that lacks memory

NAIVE_LOOP = "cpu_naive"
"""The kernel to which speed-ups are relative. This kernel has one thread and no blocking."""

BEST = "*"
TIED = "="
UNSTABLE = "!"
"""Marks that follow a time in a table. `LEGEND` explains the three marks."""

DISAGREE = f"rounds differ by more than {100 * (STABLE - 1):.0f} %"
UNSTABLE_LEGEND = f"{UNSTABLE} {DISAGREE}: do not compare this time with others"

LEGEND = {
    BEST: "fastest tile of its kernel",
    TIED: "may be as fast: its interval overlaps with the fastest tile's",
    UNSTABLE: UNSTABLE_LEGEND.removeprefix(f"{UNSTABLE} "),
}

MIN_SAMPLES = 6
"""Minimum number of samples for an interval. Fewer samples give no 95 % interval of the median."""

COARSE = 10  # an interval of at least this percentage is shown without decimals
WIDEST = 100  # an interval of more than this percentage is shown as `> 100 %`

MAX_TILES_WIDTH = 40
"""Maximum width of a cell with several tiles. A wider cell would break in the middle of a tile."""

POWER_OF_TWO = 512  # from this power of two on, the elements of a column share few cache sets
PARALLEL = "_parallel"  # suffix of the name of a baseline that runs on several threads

CONTRADICTS = 1.25
"""If a parallel baseline takes longer than its serial variant by this factor, one of the two times
is wrong."""

MAX_POINTS = 5_000  # maximum number of points that tables for a terminal list
MAX_NAMES = 8  # maximum number of variants that a line names


@dataclass(frozen=True)
class Column:
    """A column of a table of rows."""

    title: str
    text: Callable[[Row], str]
    is_text: bool = False
    meaning: str = ""


NAMES = (
    Column("variant", lambda row: row.variant, is_text=True),
    Column("tile", lambda row: row.tile, is_text=True),
)
"""The columns that name a point of a problem."""


def filled(rows: Sequence[Row], columns: Iterable[Column]) -> list[Column]:
    """Return the columns in which at least one row has a text."""
    return [column for column in columns if any(map(column.text, rows))]


def rows_table(rows: Sequence[Row], columns: Iterable[Column]) -> Table:
    """Return a table with a line for each row. Columns that are empty for all rows are left out."""
    shown = filled(rows, columns)
    left = {column.title for column in shown if column.is_text}
    grid = table(*(column.title for column in shown), left=left)
    for row in rows:
        grid.add_row(*(column.text(row) for column in shown))
    return grid


def results(rows: Sequence[Row], *, tiles: bool = True) -> Group:
    """Return the tables of times by tile and of best tiles, and the list of unmeasured points.

    The remarks follow the tables. If `tiles` is false, the times by tile are left out. If there are
    more than `MAX_POINTS` points, the tables are replaced by a text on how to list some points.
    """
    if len(rows) > MAX_POINTS:
        return Group(too_many(rows))
    parts: list[RenderableType] = []
    for problem_rows in by_problem(rows):
        measured = [row for row in problem_rows if row.status == Status.OK]
        parts.append(heading(problem_rows[0]))
        best = best_of_each(row for row in measured if row.tile)
        if tiles and (edges := [row for row in measured if row.tile.isdecimal()]):
            parts += [Text(), tile_table(edges, best)]
        if tiles and (blocks := [r for r in measured if r.tile and not r.tile.isdecimal()]):
            parts += [Text(), tile_list(blocks, best)]
        if measured:
            parts += [*([Text()] if tiles else []), best_table(measured, rows)]
        parts += not_measured(problem_rows)
    return Group(*parts, *remarks(rows, tiles=tiles))


def too_many(rows: Sequence[Row]) -> Text:
    """Return a message about too many rows for a table, with advice on how to list some rows."""
    return Text(
        f"{len(rows):,} points are too many for a table. 'gpubench show FILE --top 10' lists the "
        "fastest of each problem, and --only and --exclude choose points."
    )


def remarks(rows: Sequence[Row], *, tiles: bool = False, intervals: bool = True) -> list[Text]:
    """Return the legend of the marks in tables of these rows, and remarks on the measured values.

    `tiles` states whether the tables list the tiles of each kernel and mark the best tile, and
    `intervals` whether the tables have a column of intervals.
    """
    measured = [row for row in rows if row.status == Status.OK]
    marks = {_doubt(row) for row in measured}
    if tiles:
        for of_kernel in grouped(measured, attrgetter("problem_key", "device", "variant")).values():
            best = best_of(of_kernel)
            marks |= {_place(row, best) for row in of_kernel if row.tile}
    legend = [f"{mark} {text}" for mark, text in LEGEND.items() if mark in marks]
    if intervals and any(uncertainty(row).startswith("n=") for row in measured):
        legend.append(f"n=…: fewer than {MIN_SAMPLES} samples, too few for an interval")
    lines = ["; ".join(legend), _missed_precision(measured)]
    powers = [row for row in measured if row.n >= POWER_OF_TWO and row.n & (row.n - 1) == 0]
    loops = [row for row in powers if row.variant == NAIVE_LOOP]
    if loops and len(measured) > len(loops):
        lines.append(
            f"{NAIVE_LOOP} is slow at powers of two, as the elements that it reads share few cache "
            f"sets: speed-ups over {NAIVE_LOOP} are too high at these sizes"
        )
    for note in dict.fromkeys(row.notes for row in measured if row.notes):
        first, *more = dict.fromkeys(row.variant for row in measured if row.notes == note)
        others = counted(len(more), "other variant") if more[1:] else "".join(more)
        also = f" (also true of {others})" if more else ""
        lines.append(f"{first}: {'; '.join(map(str.strip, note.split(';')))}{also}")
    lines = list(filter(None, [*lines, *_contradicting(measured), _devices_differ(measured)]))
    return [Text(f"\n{line}" if line is lines[0] else line, style="dim") for line in lines]


def _missed_precision(rows: Sequence[Row]) -> str:
    """Return a remark on the intervals that are wider than `--precision`, or an empty text."""
    missing = [row for row in rows if row.missed_precision]
    if not missing:
        return ""
    missed = sorted(row.half_interval or 0.0 for row in missing)
    middle, widest = (_percent(half) for half in (statistics.median(missed), missed[-1]))
    default = Timing().precision
    goals = {default if r.precision_goal is None else r.precision_goal for r in missing}
    points = f"{len(missed)} of {counted(len(rows), 'point')}"
    precision = f"--precision {' or '.join(f'{100 * goal:g} %' for goal in sorted(goals))}"
    return f"{points} missed {precision}: ± {middle} in the median, {widest} at most"


def _devices_differ(rows: Sequence[Row]) -> str:
    """Return a remark on how much the speeds of devices differ, if there are several."""
    shared = [row for row in rows if row.percent_of_devices]
    speeds = {f"{row.host} {row.slot}": row.percent_of_devices or 0.0 for row in shared}
    if len(speeds) < 2:  # noqa: PLR2004 - a comparison needs two
        return ""
    slowest, fastest = min(speeds.values()), max(speeds.values())
    listed = ", ".join(f"{name} {speed:.1f} %" for name, speed in sorted(speeds.items()))
    return (
        f"measured on {len(speeds)} devices, whose speeds differ by "
        f"{100 * (fastest / slowest - 1):.1f} % at the points that all devices measured: {listed} "
        "of the median device's speed"
    )


def _contradicting(rows: Iterable[Row]) -> list[str]:
    """Return a remark on each parallel baseline that is slower than the baseline on one thread."""
    by_name = {(row.variant, row.tile, row.device, *row.problem_key): row for row in rows}
    lines = []
    for name, row in by_name.items():
        serial = by_name.get((row.variant.removesuffix(PARALLEL), *name[1:]), row)
        times = (row.median_us or 0.0) / (serial.median_us or 1.0)
        if times > CONTRADICTS:
            lines.append(
                f"{row.label} takes {times:.2g} times as long as {serial.variant} on one thread: "
                "do not use percentages of either time here"
            )
    return lines


def tile_table(rows: Sequence[Row], best: Mapping[str, Row] | None = None) -> Table:
    """Return a table of times with a line for each tile and a column for each variant.

    The best tiles are marked. `best` has the best row of each variant, if it may be in another
    table.
    """
    tiled = [row for row in rows if row.tile]
    best = best or best_of_each(tiled)
    variants = list(dict.fromkeys(row.variant for row in tiled))
    cells = {(row.tile, row.variant): row for row in tiled}
    grid = table("tile", *variants)
    for tile in sorted({row.tile for row in tiled}, key=tile_order):
        of_tile = [cells.get((tile, variant)) for variant in variants]
        grid.add_row(tile, *(_time_cell(row, best[row.variant]) if row else "" for row in of_tile))
    return grid


def tile_list(rows: Sequence[Row], best: Mapping[str, Row]) -> Table:
    """Return a table of times with a line for each tile of each variant.

    The table suits tiles that the variants do not have in common. `best` has the best row of each
    variant.
    """
    times = Column("time", lambda row: _time_cell(row, best[row.variant]).plain)
    ordered = sorted(rows, key=lambda row: (row.variant, tile_order(row.tile)))
    return rows_table(ordered, [*NAMES, times, Column("±", uncertainty)])


def best_table(rows: Sequence[Row], all_rows: Sequence[Row] = ()) -> Table:
    """Return a table of the best tile of each variant. The fastest variant comes first.

    `all_rows` also has the row of the naive loop, to which speed-ups are relative.
    """
    best = fastest_first(best_of_each(rows).values())
    tiles = Column("best tile", lambda row: _tile_names(tied_tiles(rows, row)), is_text=True)
    return rows_table(best, [NAMES[0], tiles, *figures(rows[0], all_rows or rows)])


def _tile_names(tiles: Sequence[str]) -> str:
    """Return the names of tiles, or one name and the number of others if the text is wide."""
    text = ", ".join(tiles)
    fits = len(text) <= MAX_TILES_WIDTH or len(tiles) == 1
    return text if fits else f"{tiles[0]} (+{len(tiles) - 1})"


def figures(example: Row, rows: Sequence[Row]) -> list[Column]:
    """Return the columns of a table that show times and rates.

    The operation and the backend of `example` determine the columns.

    `rows` has the row of the naive loop to which speed-ups are relative.
    """
    naive = [row for row in rows if row.variant == NAIVE_LOOP and row.median_us]
    loops = {_size_key(row): row for row in naive}
    loops |= {(*_size_key(row), *_state_key(row)): row for row in naive}
    if is_bandwidth_bound(example):
        rates = [
            Column("GB/s", lambda row: rate(row.gbytes_per_s)),
            Column("% of copy", lambda row: number(row.percent_of_copy, 1)),
        ]
    else:
        unit = "op" if example.dtype.startswith("int") else "FLOP"
        rates = [
            Column(f"G{unit}/s", lambda row: rate(row.gflops)),
            Column("% of peak", lambda row: number(row.percent_of_peak, 1)),
        ]

    def speed_up(row: Row) -> str:
        key = _size_key(row)
        loop = loops.get((*key, *_state_key(row)), loops.get(key))
        times = loop and loop.median_us and row.median_us and loop.median_us / row.median_us
        return digits(times) if times and row is not loop else ""

    blas, *_ = baseline_name(example).split()
    return [
        Column("time", marked),
        Column("±", uncertainty),
        *rates,
        Column(f"% of {blas}", lambda row: number(row.percent_of_blas, 1)),
        Column(f"× {NAIVE_LOOP}", speed_up),
        *(SUSTAINED if example.state == "sustained" else ()),
    ]


SUSTAINED = (
    Column("MHz", lambda row: number(row.sm_mhz, 0)),
    Column("% of peak at it", lambda row: number(row.percent_of_peak_at_clock, 1)),
    Column("W", lambda row: number(mean_power_w(row), 0)),
    Column("pJ/op", lambda row: rate(row.pj_per_operation)),
)
"""Columns of long runs, such as the clock that the power limit allows and the energy per
operation."""


def mean_power_w(row: Row) -> float | None:
    """Compute the mean power of a long run in watts from the measured energy."""
    return row.joules / row.median_us * 1e6 if row.joules and row.median_us else None


def is_bandwidth_bound(row: Row) -> bool:
    """Return whether memory bandwidth limits the row's operation."""
    if row.op in OPERATIONS:
        return OPERATIONS[row.op].bandwidth_bound
    return row.percent_of_copy is not None  # a user's operation, without its folder


def baseline_name(row: Row) -> str:
    """Return a name for that to which the row's `percent_of_blas` is relative.

    A user's own operation has a baseline, not a BLAS.
    """
    library = (row.library or "").strip() or "BLAS"
    return library if OPERATIONS.is_ours(row.op) else "baseline"


def is_baseline(row: Row) -> bool:
    """Return whether the row is the BLAS to which `percent_of_blas` is relative."""
    return row.percent_of_blas is not None and math.isclose(row.percent_of_blas, 100, rel_tol=1e-9)


def _size_key(row: Row) -> tuple[object, ...]:
    return row.op, row.dtype, row.numbers, row.layout, row.operands


def _state_key(row: Row) -> tuple[object, ...]:
    return row.cache, row.state, row.scope


def by_problem(rows: Iterable[Row]) -> list[list[Row]]:
    """Return lists of comparable rows, one for each problem on each device."""

    def problem(row: Row) -> tuple[object, ...]:
        return *row.problem_key, row.device or ""

    return [list(group) for _, group in groupby(sorted(rows, key=problem), key=problem)]


def fastest_first(rows: Iterable[Row]) -> list[Row]:
    """Sort the rows by time. The fastest row comes first, and rows without a time come last."""
    return sorted(rows, key=lambda row: math.inf if row.median_us is None else row.median_us)


def best_of(rows: Iterable[Row]) -> Row:
    """Return the fastest row."""
    return fastest_first(rows)[0]


def best_of_each(
    rows: Iterable[Row], key: Callable[[Row], Any] = attrgetter("variant")
) -> dict[Any, Row]:
    """Return the fastest row of each group. By default, a group has one variant."""
    return {name: best_of(group) for name, group in grouped(rows, key).items()}


def tied_tiles(rows: Iterable[Row], best: Row) -> list[str]:
    """Return the best row's tile, and the variant's other tiles that may be as fast (`_tied`)."""
    others = (row for row in rows if row.variant == best.variant and row.tile != best.tile)
    ties = sorted((row.tile for row in others if _tied(row, best)), key=tile_order)
    return [tile for tile in (best.tile, *ties) if tile]


def uncertainty(row: Row) -> str:
    """Return half of the median's 95 % interval, such as `0.3 %`.

    If there is no interval, return the reason.

    The reason is `1 round` if there are too few rounds for an interval, and `n=5` if there are too
    few samples.
    """
    if row.half_interval is None:
        return counted(row.rounds, "round") if row.rounds and row.status == Status.OK else ""
    if row.samples is not None and row.samples < MIN_SAMPLES:
        return f"n={row.samples}"
    return _percent(row.half_interval)


def _percent(fraction: float) -> str:
    percentage = 100 * fraction
    if percentage > WIDEST:
        return f"> {WIDEST} %"
    return f"{percentage:.0f} %" if percentage >= COARSE else f"{percentage:.2g} %"


def heading(row: Row) -> Text:
    """Return the heading above a problem's tables, which is the title of the problem."""
    return Text(f"\n{title(row)}", style="bold")


def title(row: Row) -> str:
    """Return the title of a problem: operation, size, dtype, device and unusual conditions."""
    return f"{problem_name(row)} on {row.device}, {row.conditions}{row.special}"


def problem_name(row: Row) -> str:
    """Return the operation, size and precision of a row, such as `gemm 1024 float32 as tf32`."""
    mode = "" if row.compute_mode == row.dtype else f" as {row.compute_mode}"
    name = f"{row.problem} ({row.size})" if row.problem else row.size
    return " ".join(filter(None, (row.op, name, row.dtype))) + mode


def _tied(row: Row, best: Row) -> bool:
    """Return whether two rows have intervals that overlap."""
    low_us, high_us = row.ci_low_us, best.ci_high_us
    return low_us is not None and high_us is not None and low_us <= high_us


def marked(row: Row, text: Callable[[float | None], str] = time_text) -> str:
    """Return the time of a row, such as `1.204 ms`, with the mark `!` if rounds disagree."""
    return f"{text(row.median_us)} {_doubt(row)}".strip()


def _doubt(row: Row) -> str:
    return UNSTABLE if row.unstable else " "


def _place(row: Row, best: Row) -> str:
    return BEST if row is best else TIED if _tied(row, best) else " "


def _time_cell(row: Row, best: Row) -> Text:
    place = _place(row, best)
    style = "bold green" if row is best else "green" if place == TIED else ""
    return Text(f"{time_text(row.median_us)} {place}{_doubt(row)}", style=style)


def with_common_reasons(rows: Sequence[Row]) -> list[Row]:
    """Return the rows with one reason if reasons differ only in the number of free bytes.

    The free memory changes while a sweep runs, so that each point may have a number of its own.
    """
    common = {row.reason: _FREE.sub("but fewer are free", row.reason) for row in rows if row.reason}
    counts = Counter(common.values())
    shared: dict[str | None, str] = {x: text for x, text in common.items() if counts[text] > 1}
    return [replace(x, reason=shared[x.reason]) if x.reason in shared else x for x in rows]


def failures(rows: Iterable[Row]) -> list[Text]:
    """Return a line for each reason of points that were wrong or ended in an error."""
    return not_measured([row for row in rows if row.status in {Status.WRONG, Status.ERROR}])


def not_measured(rows: Sequence[Row]) -> list[Text]:
    """Return a line for each status and reason of points that have no time or a reason."""
    tiles: dict[tuple[str | None, str | None], dict[str, list[str]]] = {}
    for row in with_common_reasons(rows):
        if row.reason or row.status != Status.OK:
            variants = tiles.setdefault((row.status, row.reason), {})
            variants.setdefault(row.variant, []).extend([row.tile] if row.tile else [])
    lines = []
    for (status, reason), variants in tiles.items():
        style = "yellow" if status in {Status.SKIPPED, Status.ELIMINATED} else "red"
        names = list(variants)
        if len(names) == 1:
            (of_variant,) = variants.values()
            eliminated = status == Status.ELIMINATED
            names[0] += f" {counted(len(of_variant), 'tile') if eliminated else spans(of_variant)}"
        more = [f"{len(names) - MAX_NAMES} more"] if len(names) > MAX_NAMES else []
        listed = ", ".join(names[:MAX_NAMES] + more).strip()
        lines.append(Text(f"{status}: {listed}: {reason}", style=style))
    return lines
