"""Time against tile size: a line per variant, with a large marker for its best tile."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from gpubench.results.row import Row
from gpubench.view.numbers import milliseconds
from gpubench.view.pictures import style
from gpubench.view.pictures.series import Panel, Series, Source, edge_of, is_block, panels, titles
from gpubench.view.row_tables import DISAGREE

TILES_IN, TILE_IN = 3.5, 0.21
"""Height of axes of tile sizes, and of a line of a list of block tiles."""

MAX_BLOCK_TILES = 24
"""Maximum number of block tiles of a panel, the fastest ones."""

MIN_POWERS, MAX_EDGES = 3, 16
"""Minimum number of powers of two for an axis that names no other tiles; maximum number of tiles
that an axis names."""


def tile_panels(group: Sequence[Source]) -> list[Panel]:
    """Per problem, a panel of tiles given by an edge, and a panel of block tiles, if any."""
    problems = panels(group, titles(group, by_size=True))
    edges = [_having(panel, lambda row: not is_block(row)) for panel in problems]
    blocks = [_having(panel, is_block) for panel in problems]
    drawn = [panel for panel in edges if any(map(edge_of, panel.rows))]
    for panel in blocks:
        if count := len(panel.rows):
            most = f", the {MAX_BLOCK_TILES} fastest of {count}" * (count > MAX_BLOCK_TILES)
            drawn.append(replace(panel, title=f"{panel.title}: block tiles{most}"))
    return drawn


def _having(panel: Panel, test: Callable[[Row], object]) -> Panel:
    """Return the panel with the rows that pass the test."""
    lines = [replace(line, rows=tuple(filter(test, line.rows))) for line in panel.series]
    return replace(panel, series=tuple(line for line in lines if line.rows))


def draw_tiles(panel: Panel, looks: style.Looks, axes: Axes) -> float:
    """Draw edges as lines. Block tiles have no natural order, so they are a list."""
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
    axes.set_xlabel(f"tile size{_key(panel)}")
    style.log_axis(axes, "y")
    style.y_title(axes, "time per launch, ms")
    style.legend(axes, lines)
    return TILES_IN


def _curve(axes: Axes, line: Series, look: style.Look) -> Line2D:
    """Draw the line with its 95 % intervals as a band, and return its entry in the legend."""
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
            _mark(axes, (int(row.tile), _ms(row)), row, look, is_best=row is line.best)
    style.ring(axes, rows, list(zip(tiles, times, strict=True)))
    text = style.label(line.name, f"best {line.best.tile}: {milliseconds(line.best.median_us)} ms")
    return Line2D([tiles[-1]], [times[-1]], **drawn, label=text)


def _blocks(panel: Panel, looks: style.Looks, axes: Axes) -> float:
    """Draw block tiles as a list with the fastest on top."""
    pairs = [(line, row) for line in panel.series for row in line.rows]
    pairs = sorted(pairs, key=lambda pair: _ms(pair[1]))[:MAX_BLOCK_TILES]
    # A kernel looks the same in all lists: its name stands in each row.
    drawn = [looks.get(line.variant, style.FAINT) for line, _ in pairs]
    for place, ((line, row), look) in enumerate(zip(pairs, drawn, strict=True)):
        _mark(axes, (_ms(row), place), row, look, is_best=row is line.best)
    axes.yaxis.tick_right()
    texts = [style.label(f"{line.name}  {row.tile}") for line, row in pairs]
    axes.set_yticks(range(len(texts)), texts)
    axes.set_ylim(len(texts) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    for text, look in zip(axes.get_yticklabels(), drawn, strict=True):
        text.set_color(look.colour or style.ink())
    rows = [row for _, row in pairs]
    style.ring(axes, rows, [(_ms(row), place) for place, row in enumerate(rows)])
    ring = f"; ring: {DISAGREE}" if any(row.unstable for row in rows) else ""
    style.log_axis(axes, "x")
    axes.set_xlabel(f"time per launch, ms{_key(panel)}{ring}")
    return max(1.0, TILE_IN * len(pairs) * style.line_count(texts))


def _key(panel: Panel) -> str:
    """Explain the markers, after the title of an axis."""
    spills = any(row.tile and row.local_bytes for row in panel.rows)
    return " (large: best tile; cross: uses local memory)" if spills else " (large: best tile)"


def _mark(
    axes: Axes, point: tuple[float, float], row: Row, look: style.Look, *, is_best: bool
) -> None:
    """Draw the marker of a tile: large for the best tile, a cross if it uses local memory."""
    marker = "x" if row.local_bytes else look.marker or "o"
    axes.plot(*point, **look.options | {"marker": marker, "markersize": 9 if is_best else 5})


def _ms(row: Row) -> float:
    return (row.median_us or 0.0) / 1e3
