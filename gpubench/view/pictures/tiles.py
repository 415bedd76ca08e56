"""Time against tile size: a line per variant, with a large marker for its best tile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from gpubench.results.row import Row
from gpubench.view.pictures import style
from gpubench.view.pictures.series import Panel, Series, Source, edge_of, grouped, panels
from gpubench.view.tables import DISAGREE, milliseconds

TILES_IN, TILE_IN = 3.5, 0.21
"""Height of axes of tile sizes, and of a line of a list of block tiles."""

MAX_BLOCK_TILES = 24
"""Maximum number of block tiles of a panel, the fastest ones."""

MIN_POWERS = 3
"""Minimum number of powers of two for an axis that names no other tiles."""


def tile_panels(group: Sequence[Source]) -> style.Panels:
    """Per problem, a panel of tiles given by an edge, and a panel of block tiles, if any."""
    problems = panels(group, by_size=True)
    edges = [panel for panel in problems if any(map(edge_of, panel.rows))]
    blocks = [panel for panel in problems if any(map(_is_block, panel.rows))]
    looks = style.looks(
        [line.variant for test in tests for line in _having(panel, test)]
        for panel in problems
        for tests in ((edge_of, _has_no_tile), (_is_block,))
    )
    return [
        *((panel.title, partial(_edges, panel, looks)) for panel in edges),
        *((f"{panel.title}: block tiles", partial(_blocks, panel, looks)) for panel in blocks),
    ]


def _edges(panel: Panel, looks: style.Looks, axes: Axes) -> float:
    lines = [_curve(axes, line, looks[line.variant]) for line in _having(panel, edge_of)]
    flat = _having(panel, _has_no_tile)
    is_alone = len({line.variant for line in flat}) == 1
    for line in flat:
        drawn = axes.axhline(
            _ms(line.best),
            color=style.ink() if is_alone else looks[line.variant].colour,
            linewidth=1,
            linestyle=line.source.dashes,
            label=style.label(line.name, f"{milliseconds(line.best.median_us)} ms"),
        )
        lines.append(drawn)
    tiles = sorted({edge for row in panel.rows if (edge := edge_of(row))})
    powers = [tile for tile in tiles if tile & (tile - 1) == 0]
    named = powers if len(powers) >= MIN_POWERS else tiles
    style.size_axis(axes, {str(tile): tile for tile in named}, f"tile size{_key(panel)}")
    style.log_axis(axes, "y")
    axes.set_ylabel("time per launch, ms")
    style.legend(axes, lines)
    return TILES_IN


def _curve(axes: Axes, line: Series, look: style.Look) -> Line2D:
    """Draw the line, and return its entry in the legend."""
    rows = sorted(filter(edge_of, line.rows), key=lambda row: int(row.tile))
    tiles = [int(row.tile) for row in rows]
    line_style: dict[str, Any] = {"color": look.colour, "linestyle": line.source.dashes}
    axes.plot(tiles, [_ms(row) for row in rows], **line_style)
    style.interval(axes, tiles, rows, look.colour)
    best = line.best
    alike = grouped(rows, lambda row: (row is best, bool(row.local_bytes)))
    for (is_best, _), group in alike.items():
        points = [int(row.tile) for row in group], [_ms(row) for row in group]
        axes.plot(*points, **_marker(group[0], look, largest=is_best))
    style.ring(axes, rows, [(int(row.tile), _ms(row)) for row in rows])
    text = style.label(line.name, f"best {best.tile}: {milliseconds(best.median_us)} ms")
    return Line2D([tiles[-1]], [_ms(rows[-1])], **line_style, marker=look.marker, label=text)


def _blocks(panel: Panel, looks: style.Looks, axes: Axes) -> float:
    """Draw block tiles, which have no natural order, as a list with the fastest on top."""
    pairs = [(line, row) for line in panel.series for row in line.rows if _is_block(row)]
    pairs = sorted(pairs, key=lambda pair: _ms(pair[1]))[:MAX_BLOCK_TILES]
    for place, (line, row) in enumerate(pairs):
        axes.plot(_ms(row), place, **_marker(row, looks[line.variant], largest=row is line.best))
    axes.yaxis.tick_right()
    texts = [style.label(f"{line.name}  {row.tile}") for line, row in pairs]
    style.name_rows(axes, texts)
    for text, (line, _) in zip(axes.get_yticklabels(), pairs, strict=True):
        text.set_color(looks[line.variant].colour)
    rows = [row for _, row in pairs]
    style.ring(axes, rows, [(_ms(row), place) for place, row in enumerate(rows)])
    ring = f"; ring: {DISAGREE}" if any(row.unstable for row in rows) else ""
    style.log_axis(axes, "x")
    axes.set_xlabel(f"time per launch, ms{_key(panel)}{ring}")
    return max(1.0, TILE_IN * len(pairs) * style.line_count(texts))


def _having(panel: Panel, test: Callable[[Row], object]) -> list[Series]:
    """Return the lines with a row that passes the test."""
    return [line for line in panel.series if any(map(test, line.rows))]


def _has_no_tile(row: Row) -> bool:
    return not row.tile


def _is_block(row: Row) -> bool:
    return bool(row.tile) and edge_of(row) is None


def _key(panel: Panel) -> str:
    """Explain the markers, after the title of an axis."""
    spills = any(row.tile and row.local_bytes for row in panel.rows)
    return " (large: best tile; cross: uses local memory)" if spills else " (large: best tile)"


def _marker(row: Row, look: style.Look, *, largest: bool) -> dict[str, Any]:
    """Return matplotlib's options for a tile: a cross if the kernel uses local memory."""
    size = 9.0 if largest else 5.0 if row.local_bytes else 4.0
    shape = {"marker": "x", "markeredgewidth": 1.3} if row.local_bytes else {"marker": look.marker}
    return {"linestyle": "", "color": look.colour, "markersize": size} | shape


def _ms(row: Row) -> float:
    return (row.median_us or 0.0) / 1e3
