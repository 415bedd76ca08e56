"""Draws time against tile size. Each variant has a line, with a large marker at the best tile."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from gpubench.results.row import Row
from gpubench.view.numbers import milliseconds
from gpubench.view.pictures import style
from gpubench.view.pictures.series import Panel, Series, Source, edge_of, is_block, panels, titles
from gpubench.view.row_tables import marked

TILES_IN = 3.5  # height in inches of axes that show times against tile sizes

MAX_BLOCK_TILES = 24
"""Maximum number of block tiles in a panel. If there are more, only the fastest tiles are drawn."""

MIN_POWERS = 3
"""If at least this number of tiles are powers of two, the axis names only powers of two."""

MAX_EDGES = 16  # maximum number of tiles that an axis names


def tile_panels(group: Sequence[Source]) -> list[Panel]:
    """Return up to two panels for each problem.

    One panel has tiles that are a single number. The other panel has block tiles.

    A panel without tiles is left out.
    """
    drawn = _edge_panels(group)
    for panel in (_having(each, is_block) for each in panels(group, titles(group, by_size=True))):
        if count := len(panel.rows):
            title = f"{panel.title}: block tiles"
            if count > MAX_BLOCK_TILES:
                title += f", the {MAX_BLOCK_TILES} fastest of {count}"
            drawn.append(replace(panel, title=title))
    return drawn


def looks_of(group: Sequence[Source]) -> style.Looks:
    """Return the looks of the variants that are drawn in colour in any picture of these rows."""
    parts = panels(group, titles(group, by_size=False)), _edge_panels(group)
    leading = ({variant for panel in part for variant in panel.leading} for part in parts)
    return style.looks([variant for part in leading for variant in sorted(part)])


def _edge_panels(group: Sequence[Source]) -> list[Panel]:
    """Return a panel for each problem with tiles that are a single number."""
    problems = panels(group, titles(group, by_size=True))
    edges = [_having(panel, lambda row: not is_block(row)) for panel in problems]
    return [panel for panel in edges if any(map(edge_of, panel.rows))]


def _having(panel: Panel, test: Callable[[Row], object]) -> Panel:
    """Return a copy of the panel with only the rows for which `test` is true."""
    lines = [replace(line, rows=tuple(filter(test, line.rows))) for line in panel.series]
    return replace(panel, series=tuple(line for line in lines if line.rows))


def draw_tiles(panel: Panel, looks: style.Looks, axes: Axes) -> float:
    """Draw lines over edges of tiles, or bars for block tiles, which have no order."""
    if all(map(is_block, panel.rows)):
        return _blocks(panel, looks, axes)
    lines = []
    for line in panel.series:
        look = panel.look(line.variant, looks)
        lines += [_curve(axes, line, look)] if any(map(edge_of, line.rows)) else []
        if not line.best.tile:
            text = style.label(line.name, f"{milliseconds(line.best.median_us)} ms")
            options = look.options | {"linewidth": 1, "linestyle": line.source.dashes}
            lines.append(axes.axhline(_ms(line.best), **options, label=text))
    tiles = sorted({edge for row in panel.rows if (edge := edge_of(row))})
    powers = [tile for tile in tiles if tile & (tile - 1) == 0]
    named = powers if len(powers) >= MIN_POWERS else tiles[:: math.ceil(len(tiles) / MAX_EDGES)]
    axes.set_xscale("log", base=2)
    axes.set_xticks(named, map(str, named))
    axes.set_xticks([], minor=True)
    key = "; cross: uses local memory" if any(row.local_bytes for row in panel.rows) else ""
    axes.set_xlabel(f"tile size (large: best tile{key})")
    style.log_axis(axes, "y")
    style.y_title(axes, "time per launch, ms")
    style.legend(axes, lines)
    return TILES_IN


def _curve(axes: Axes, line: Series, look: style.Look) -> Line2D:
    """Draw a line with a band for the 95 % intervals, and return the line's entry in the legend."""
    rows = sorted(filter(edge_of, line.rows), key=lambda row: int(row.tile))
    tiles, times = [int(row.tile) for row in rows], [_ms(row) for row in rows]
    drawn = look.options | {"linestyle": line.source.dashes}
    plain = [place for place, row in enumerate(rows) if not row.local_bytes]
    axes.plot(tiles, times, **drawn, markersize=4, markevery=plain)
    low, high = (
        [(getattr(row, name) or row.median_us or 0.0) / 1e3 for row in rows]
        for name in ("ci_low_us", "ci_high_us")
    )
    axes.fill_between(tiles, low, high, color=drawn["color"], alpha=0.25, linewidth=0)
    for row in rows:
        if row is line.best or row.local_bytes:
            marker = {"marker": "x"} if row.local_bytes else {}
            size = 9 if row is line.best else 5
            axes.plot(int(row.tile), _ms(row), **look.options | marker, markersize=size)
    style.ring(axes, rows, list(zip(tiles, times, strict=True)))
    text = style.label(line.name, f"best {line.best.tile}: {milliseconds(line.best.median_us)} ms")
    return Line2D([tiles[-1]], [times[-1]], **drawn, label=text)


def _blocks(panel: Panel, looks: style.Looks, axes: Axes) -> float:
    """Draw a bar for each block tile, with the fastest tile on top."""
    pairs = [(line, row) for line in panel.series for row in line.rows]
    pairs = sorted(pairs, key=lambda pair: _ms(pair[1]))[:MAX_BLOCK_TILES]
    bars = []
    for line, row in pairs:
        memory = ", uses local memory" if row.local_bytes else ""
        figure = f"{marked(row, milliseconds)}{memory}"
        # A kernel has one colour in all panels. Grey stands for all other variants.
        colour = looks.get(line.variant, style.FAINT).colour or "0.55"
        bars.append((f"{line.name}  {row.tile}", figure, _ms(row), colour))
    rows = [row for _, row in pairs]
    halves = [row.half_interval for row in rows]
    return style.draw_bars(axes, bars, "time per launch, ms", rows, halves)


def _ms(row: Row) -> float:
    return (row.median_us or 0.0) / 1e3
