"""Time against tile size: a line a variant, its best tile large, crosses where it spills."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from gpubench.errors import UsageError
from gpubench.row import Row
from gpubench.view.pictures import Theme
from gpubench.view.pictures.series import Panel, Series, Source, edge_of, panels
from gpubench.view.pictures.style import (
    Look,
    Picture,
    compose,
    ink,
    label,
    legend,
    line_count,
    log_axis,
    looks,
    size_axis,
)
from gpubench.view.tables import milliseconds

HEIGHT_IN, ROW_IN = 3.5, 0.21
MAX_BLOCK_TILES = 24
"""Of block tiles, the fastest so many are drawn."""

FEWEST_POWERS = 3
"""With fewer powers of two among the tiles, other tiles are named below the axis too."""

Looks = Mapping[str, Look]


def draw(of: Sequence[Source], theme: Theme) -> Picture:
    """Per problem, a panel of the tiles given by an edge, and one of the block tiles, if any."""
    found = panels(of, by_size=True)
    edges = [panel for panel in found if any(edge_of(row) for row in panel.rows)]
    blocks = [panel for panel in found if any(_is_block(row) for row in panel.rows)]
    if not edges and not blocks:
        raise UsageError("--kind tiles: no row has a tile; --kind blas compares without tiles")
    look_of = looks(
        [line.variant for line in lines]
        for panel in found
        for lines in (
            [*_of_tiles(panel, edge_of), *_of_tiles(panel, _has_none)],
            _of_tiles(panel, _is_block),
        )
    )
    return compose(
        "Time against tile size",
        [(panel.title, partial(_edges, panel, look_of)) for panel in edges]
        + [(f"{panel.title}: block tiles", partial(_blocks, panel, look_of)) for panel in blocks],
        theme,
    )


def _edges(panel: Panel, look_of: Looks, axes: Axes) -> float:
    tiles = sorted({edge for row in panel.rows if (edge := edge_of(row))})
    powers = [tile for tile in tiles if tile & (tile - 1) == 0]
    lines = [_curve(axes, line, look_of[line.variant]) for line in _of_tiles(panel, edge_of)]
    flat = _of_tiles(panel, _has_none)
    is_alone = len({line.variant for line in flat}) == 1
    lines += [
        axes.axhline(
            _ms(line.best),
            color=ink() if is_alone else look_of[line.variant].colour,
            linewidth=1,
            linestyle=line.source.dashes,
            label=label(line.name, f"{milliseconds(line.best.median_us)} ms"),
        )
        for line in flat
    ]
    named = powers if len(powers) >= FEWEST_POWERS else tiles
    size_axis(axes, {str(tile): tile for tile in named}, f"tile size{_key(panel)}")
    log_axis(axes, "y")
    axes.set_ylabel("time per launch, ms")
    legend(axes, lines)
    return HEIGHT_IN


def _curve(axes: Axes, line: Series, look: Look) -> Line2D:
    """Draw the line; what stands for it in the legend."""
    points = sorted((edge, row) for row in line.rows if (edge := edge_of(row)))
    tiles, rows = [edge for edge, _ in points], [row for _, row in points]
    low = [(row.ci_low_us or row.median_us or 0.0) / 1e3 for row in rows]
    high = [(row.ci_high_us or row.median_us or 0.0) / 1e3 for row in rows]
    style: dict[str, Any] = {"color": look.colour, "linestyle": line.source.dashes}
    axes.plot(tiles, [_ms(row) for row in rows], **style)
    axes.fill_between(tiles, low, high, color=look.colour, alpha=0.25, linewidth=0)
    for edge, row in points:
        axes.plot(edge, _ms(row), **_marker(row, look, largest=row is line.best))
    best = f"best {line.best.tile}: {milliseconds(line.best.median_us)} ms"
    end = ([tiles[-1]], [_ms(rows[-1])])
    return Line2D(*end, **style, marker=look.marker, label=label(line.name, best))


def _blocks(panel: Panel, look_of: Looks, axes: Axes) -> float:
    """Block tiles have no order: one below the other, the fastest on top."""
    pairs = [(line, row) for line in panel.series for row in line.rows if _is_block(row)]
    pairs = sorted(pairs, key=lambda pair: _ms(pair[1]))[:MAX_BLOCK_TILES]
    for place, (line, row) in enumerate(pairs):
        axes.plot(_ms(row), place, **_marker(row, look_of[line.variant], largest=row is line.best))
    axes.yaxis.tick_right()
    texts = [label(f"{line.name}  {row.tile}") for line, row in pairs]
    axes.set_yticks(range(len(pairs)), texts)
    for text, (line, _) in zip(axes.get_yticklabels(), pairs, strict=True):
        text.set_color(look_of[line.variant].colour)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(pairs) - 0.4, -0.6)
    log_axis(axes, "x")
    axes.set_xlabel(f"time per launch, ms{_key(panel)}")
    return max(1.0, ROW_IN * len(pairs) * line_count(texts))


def _of_tiles(panel: Panel, test: Callable[[Row], object]) -> list[Series]:
    """The lines with a row whose tile passes the test."""
    return [line for line in panel.series if any(test(row) for row in line.rows)]


def _has_none(row: Row) -> bool:
    return not row.tile


def _is_block(row: Row) -> bool:
    return bool(row.tile) and edge_of(row) is None


def _key(panel: Panel) -> str:
    """What the markers mean, behind an axis' title."""
    spills = any(row.tile and row.local_bytes for row in panel.rows)
    return " (large: best tile; cross: uses local memory)" if spills else " (large: best tile)"


def _marker(row: Row, look: Look, *, largest: bool) -> dict[str, Any]:
    """Matplotlib's options for a tile: a cross where registers or arrays are in local memory."""
    size = 9.0 if largest else 5.0 if row.local_bytes else 4.0
    shape = {"marker": "x", "markeredgewidth": 1.3} if row.local_bytes else {"marker": look.marker}
    return {"linestyle": "", "color": look.colour, "markersize": size} | shape


def _ms(row: Row) -> float:
    return (row.median_us or 0.0) / 1e3
