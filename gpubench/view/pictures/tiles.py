"""Time against tile size: a line a variant, its best tile large, crosses where it spills."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes

from gpubench.errors import UsageError
from gpubench.row import Row
from gpubench.view.pictures.labels import EndLabel, height_for, label_ends, room_for, short
from gpubench.view.pictures.series import Panel, Series, Source, edge_of, panels, spills
from gpubench.view.pictures.style import (
    LINE_IN,
    Look,
    Picture,
    fixed_ticks,
    head,
    ink_of,
    log_ticks,
    looks,
    sheet,
    source_key,
)
from gpubench.view.tables import milliseconds

HEIGHT_IN = 3.5
MAX_BLOCK_TILES = 24
"""Of block tiles, the fastest so many are drawn."""

FEWEST_POWERS = 3
"""With fewer powers of two among the tiles, every tile is a tick."""

SPILLED: dict[str, Any] = {"marker": "x", "markersize": 5.5, "markeredgewidth": 1.3}
"""A cross is seen on any page, where a hollow mark needs to know the page's colour."""


def draw(of: Sequence[Source]) -> Picture:
    """Per problem, a panel of the tiles given by an edge, and one of the block tiles, if any."""
    found = panels(of, by_size=True)
    labels = [one.label for one in of]
    edges = [one for one in found if any(edge_of(row) for row in one.rows)]
    blocks = [one for one in found if any(_is_block(row) for row in one.rows)]
    if not edges and not blocks:
        raise UsageError("--kind tiles: no row has a tile; --kind blas compares without tiles")
    every = [one for panel in found for one in panel.series]
    # Those without a tile are grey lines: the colours are for the others.
    tiled = [one.variant for one in every if any(row.tile for row in one.rows)]
    look = looks(dict.fromkeys((*tiled, *(one.variant for one in every))), labels)
    heights = [_height_of_edges(one) for one in edges] + [_height_of_blocks(one) for one in blocks]
    right = room_for(label for one in every for label in (*_texts(one), *_names(one)))
    figure, axes = sheet("Time against tile size", heights, right)
    for panel, ax in zip(edges, axes, strict=False):
        _edges(ax, panel, look, labels)
    for panel, ax in zip(blocks, axes[len(edges) :], strict=True):
        _blocks(ax, panel, look)
    return figure


def _edges(axes: Axes, panel: Panel, look: dict[tuple[str, str], Look], labels: list[str]) -> None:
    drawn = [one for one in panel.series if any(edge_of(row) for row in one.rows)]
    flat = [one for one in panel.series if not any(row.tile for row in one.rows)]
    # Where several sources have a variant, one label says which it is; the dashes say the source.
    ends = [_curve(axes, one, look[one.variant, one.source.label]) for one in drawn]
    tiles = sorted({edge for row in panel.rows if (edge := edge_of(row))})
    for one in flat:
        milli = _ms(one.best)
        style = look[one.variant, one.source.label].dashes
        axes.axhline(milli, color=ink_of(axes), linewidth=1, linestyle=style)
        ends.append(_end(one, tiles[-1], milli, ink_of(axes)))
    axes.set_xscale("log", base=2)
    _limits(axes, tiles)
    log_ticks(axes, "y")
    axes.set_xlabel("tile size")
    axes.set_ylabel("time per launch, ms")
    label_ends(axes, list({label.name: label for label in reversed(ends)}.values()))
    head(axes, panel.title, [*_marks(panel), *source_key(labels)])


def _curve(axes: Axes, one: Series, look: Look) -> EndLabel:
    rows = sorted((row for row in one.rows if edge_of(row)), key=lambda row: edge_of(row) or 0)
    tiles = [edge_of(row) or 0 for row in rows]
    axes.plot(tiles, [_ms(row) for row in rows], color=look.colour, linestyle=look.dashes)
    axes.fill_between(
        tiles,
        [(row.ci_low_us or row.median_us or 0.0) / 1e3 for row in rows],
        [(row.ci_high_us or row.median_us or 0.0) / 1e3 for row in rows],
        color=look.colour,
        alpha=0.25,
        linewidth=0,
    )
    for row in rows:
        at = (edge_of(row) or 0, _ms(row))
        axes.plot(*at, **_mark(row, look, largest=row is one.best))
    return _end(one, tiles[-1], _ms(rows[-1]), look.colour)


def _end(one: Series, x: float, y: float, colour: str) -> EndLabel:
    name, figure = _texts(one)
    return EndLabel(x=x, y=y, name=name, figure=figure, colour=colour)


def _texts(one: Series) -> tuple[str, str]:
    best = one.best
    which = f"best {best.tile}: " if best.tile else ""
    return one.variant, f"{which}{milliseconds(best.median_us)} ms"


def _names(one: Series) -> list[str]:
    return [f"{row.variant}  {row.tile}" for row in one.rows if _is_block(row)]


def _blocks(axes: Axes, panel: Panel, look: dict[tuple[str, str], Look]) -> None:
    """Block tiles have no order: one below the other, the fastest on top."""
    chosen = _fastest_blocks(panel)
    for place, (one, row) in enumerate(chosen):
        at = look[one.variant, one.source.label]
        axes.plot(_ms(row), place, **_mark(row, at, largest=row is one.best))
        axes.text(
            1.02,
            place,
            short(f"{row.variant}  {row.tile}"),
            transform=axes.get_yaxis_transform(),
            va="center",
            fontsize=axes.xaxis.label.get_fontsize(),
            color=at.colour,
        )
    axes.set_ylim(len(chosen) - 0.4, -0.6)
    axes.set_yticks([])
    low, high = _ms(chosen[0][1]), max(_ms(row) for _, row in chosen)
    axes.set_xlim(low / 1.15, high * 1.15)
    log_ticks(axes, "x")
    axes.set_xlabel("time per launch, ms")
    head(axes, f"{panel.title}: block tiles", _marks(panel))


def _fastest_blocks(panel: Panel) -> list[tuple[Series, Row]]:
    pairs = [(one, row) for one in panel.series for row in one.rows if _is_block(row)]
    return sorted(pairs, key=lambda pair: _ms(pair[1]))[:MAX_BLOCK_TILES]


def _height_of_edges(panel: Panel) -> float:
    return height_for(len({one.variant for one in panel.series}), HEIGHT_IN)


def _height_of_blocks(panel: Panel) -> float:
    return max(1.0, 1.35 * LINE_IN * len(_fastest_blocks(panel)) + 0.1)


def _is_block(row: Row) -> bool:
    return bool(row.tile) and edge_of(row) is None


def _mark(row: Row, look: Look, *, largest: bool) -> dict[str, Any]:
    """Matplotlib's words for a tile's mark: a cross where the kernel uses local memory."""
    mark = SPILLED if spills(row) else {"marker": look.mark, "markersize": 4}
    return {"linestyle": "", "color": look.colour} | mark | ({"markersize": 9} if largest else {})


def _limits(axes: Axes, tiles: Sequence[int]) -> None:
    axes.set_xlim(tiles[0] / 1.12, tiles[-1] * 1.12)
    powers = [tile for tile in tiles if tile & (tile - 1) == 0]
    ticks = powers if len(powers) >= FEWEST_POWERS else tiles
    fixed_ticks(axes, ticks, [str(tile) for tile in ticks])


def _marks(panel: Panel) -> list[tuple[str, dict[str, Any]]]:
    entries: list[tuple[str, dict[str, Any]]] = [("best tile", {"marker": "o", "markersize": 8})]
    if any(row.tile and spills(row) for row in panel.rows):
        entries.append(("uses local memory", SPILLED))
    return entries


def _ms(row: Row) -> float:
    return (row.median_us or 0.0) / 1e3
