"""Time against tile size: a line per variant, with a large marker for its best tile."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from gpubench.grouping import grouped
from gpubench.results.row import Row
from gpubench.view.numbers import milliseconds
from gpubench.view.pictures import style
from gpubench.view.pictures.series import (
    Panel,
    Series,
    Source,
    edge_of,
    is_block,
    is_no_block,
    panels,
)
from gpubench.view.row_tables import DISAGREE

TILES_IN, TILE_IN = 3.5, 0.21
"""Height of axes of tile sizes, and of a line of a list of block tiles."""

MAX_BLOCK_TILES = 24
"""Maximum number of block tiles of a panel, the fastest ones."""

MIN_POWERS = 3
"""Minimum number of powers of two for an axis that names no other tiles."""


def tile_panels(group: Sequence[Source], looks: style.Looks) -> style.Panels:
    """Per problem, a panel of tiles given by an edge, and a panel of block tiles, if any."""
    problems = panels(group, by_size=True)
    edges = [panel.having(is_no_block) for panel in problems]
    edges = [panel for panel in edges if any(map(edge_of, panel.rows))]
    blocks = [panel.having(is_block) for panel in problems]
    blocks = [panel for panel in blocks if panel.series]
    return [
        *((panel.title, partial(_edges, panel, looks)) for panel in edges),
        *((f"{panel.title}: block tiles{_left_out(panel)}", partial(_blocks, panel, looks))
          for panel in blocks),
    ]  # fmt: skip


def _left_out(panel: Panel) -> str:
    count = len(panel.rows)
    return f", the {MAX_BLOCK_TILES} fastest of {count}" if count > MAX_BLOCK_TILES else ""


def _edges(panel: Panel, looks: style.Looks, axes: Axes) -> float:
    lines = [
        _curve(axes, line, panel.look(line.variant, looks))
        for line in panel.series
        if any(map(edge_of, line.rows))
    ]
    for line in panel.series:
        if not line.best.tile:
            look = panel.look(line.variant, looks)
            drawn = axes.axhline(
                _ms(line.best),
                **look.options | {"linewidth": 1},
                linestyle=line.source.dashes,
                label=style.label(line.name, f"{milliseconds(line.best.median_us)} ms"),
            )
            lines.append(drawn)
    tiles = sorted({edge for row in panel.rows if (edge := edge_of(row))})
    powers = [tile for tile in tiles if tile & (tile - 1) == 0]
    named = powers if len(powers) >= MIN_POWERS else tiles
    style.size_axis(axes, {str(tile): tile for tile in named}, f"tile size{_key(panel)}")
    style.log_axis(axes, "y")
    style.y_title(axes, "time per launch, ms")
    style.legend(axes, lines)
    return TILES_IN


def _curve(axes: Axes, line: Series, look: style.Look) -> Line2D:
    """Draw the line, and return its entry in the legend."""
    rows = sorted(filter(edge_of, line.rows), key=lambda row: int(row.tile))
    tiles = [int(row.tile) for row in rows]
    drawn = look.options | {"linestyle": line.source.dashes}
    axes.plot(tiles, [_ms(row) for row in rows], **drawn | {"marker": ""})
    style.interval(axes, tiles, rows, drawn["color"])
    best = line.best
    alike = grouped(rows, lambda row: (row is best, bool(row.local_bytes)))
    for (is_best, _), group in alike.items():
        points = [int(row.tile) for row in group], [_ms(row) for row in group]
        axes.plot(*points, **_marker(group[0], look, largest=is_best))
    style.ring(axes, rows, [(int(row.tile), _ms(row)) for row in rows])
    text = style.label(line.name, f"best {best.tile}: {milliseconds(best.median_us)} ms")
    return Line2D([tiles[-1]], [_ms(rows[-1])], **drawn, label=text)


def _blocks(panel: Panel, looks: style.Looks, axes: Axes) -> float:
    """Draw block tiles, which have no natural order, as a list with the fastest on top."""
    pairs = [(line, row) for line in panel.series for row in line.rows]
    pairs = sorted(pairs, key=lambda pair: _ms(pair[1]))[:MAX_BLOCK_TILES]
    for place, (line, row) in enumerate(pairs):
        look = looks.get(line.variant, style.FAINT)  # the same in all panels: each row has a name
        axes.plot(_ms(row), place, **_marker(row, look, largest=row is line.best))
    axes.yaxis.tick_right()
    texts = [style.label(f"{line.name}  {row.tile}") for line, row in pairs]
    axes.set_yticks(range(len(texts)), texts)
    axes.set_ylim(len(texts) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    for text, (line, _) in zip(axes.get_yticklabels(), pairs, strict=True):
        text.set_color(looks.get(line.variant, style.FAINT).colour or style.ink())
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


def _marker(row: Row, look: style.Look, *, largest: bool) -> dict[str, Any]:
    """Return matplotlib's options for a tile: a cross if the kernel uses local memory."""
    size = 9.0 if largest else 5.0 if row.local_bytes else 4.0
    shape = (
        {"marker": "x", "markeredgewidth": 1.3}
        if row.local_bytes
        else {"marker": look.marker or "o"}
    )
    return look.options | {"linestyle": "", "markersize": size} | shape


def _ms(row: Row) -> float:
    return (row.median_us or 0.0) / 1e3
