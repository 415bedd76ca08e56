"""Draws the tile curves after a sweep, with a line per variant, for a terminal of 80 columns."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gpubench.model import Status
from gpubench.results.row import Row
from gpubench.view.numbers import milliseconds
from gpubench.view.tables import best_of, by_problem

BARS = "▁▂▃▄▅▆▇█"

MIN_TILES = 4
"""Minimum number of tiles for a curve."""

WIDEST = 36
"""Maximum number of tiles side by side. Of more tiles, every second or third is shown, and the best
one."""

LONGEST_NAME = 20


def curves(rows: Sequence[Row]) -> RenderableType | None:
    """Return curves with a bar per tile, on a logarithmic scale that the variants of a size share.

    Slower tiles have higher bars. None if no variant has enough tiles that are a single edge.
    """
    tiled = [row for row in rows if row.status == Status.OK and row.tile.isdecimal()]
    parts: list[RenderableType] = []
    for of_problem in by_problem(tiled):
        edges = sorted({int(row.tile) for row in of_problem})
        if len(edges) >= MIN_TILES:
            first = of_problem[0]
            title = f"\n{first.op} {first.size} {first.dtype}, {first.cache} cache: time by tile"
            parts += [Text(title, style="bold"), _grid(of_problem, edges)]
    return Group(*parts) if parts else None


def _grid(rows: Sequence[Row], edges: Sequence[int]) -> Table:
    times = [math.log(row.median_us) for row in rows if row.median_us]
    low, high = min(times), max(times)
    grid = Table.grid(padding=(0, 1))
    grid.add_column(width=LONGEST_NAME, no_wrap=True, overflow="ellipsis")
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True)
    for variant in dict.fromkeys(row.variant for row in rows):
        by_edge = {int(row.tile): row for row in rows if row.variant == variant}
        best = best_of(by_edge.values())
        shown = _shown(edges, int(best.tile))
        bars = Text("".join(_bar(by_edge.get(edge), low, high) for edge in shown), style="cyan")
        place = shown.index(int(best.tile))
        bars.stylize("bold green", place, place + 1)
        grid.add_row(variant, bars, f"best {best.tile}: {milliseconds(best.median_us)} ms")
    # The first and the last tile are printed under the first and the last bar.
    left, right = str(edges[0]), str(edges[-1])
    width = len(_shown(edges, edges[0])) - len(left)
    grid.add_row("", Text(left + right.rjust(max(width, len(right) + 1)), style="dim"), "")
    return grid


def _shown(edges: Sequence[int], best: int) -> list[int]:
    """Return the tiles that fit. If not all do, the best tile replaces its neighbour."""
    step = math.ceil(len(edges) / WIDEST)
    chosen = list(edges[::step])
    if best not in chosen:
        chosen[list(edges).index(best) // step] = best
    return chosen


def _bar(row: Row | None, low: float, high: float) -> str:
    if row is None or not row.median_us:
        return " "
    height = (math.log(row.median_us) - low) / (high - low) if high > low else 0.0
    return BARS[round(height * (len(BARS) - 1))]
