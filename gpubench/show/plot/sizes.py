"""GFLOP/s against size: each variant at its best tile, under the peak and beside the BLAS."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes

from gpubench.show.plot.labels import EndLabel, height_for, label_ends, room_for
from gpubench.show.plot.series import (
    Panel,
    Series,
    Source,
    extent,
    grouped,
    is_baseline,
    panels,
    peak_gflops,
)
from gpubench.show.plot.style import (
    Look,
    Picture,
    head,
    ink_of,
    log_ticks,
    looks,
    sheet,
    size_ticks,
    source_key,
)
from gpubench.show.tables import best_of, number
from gpubench.table import Row

HEIGHT_IN = 4.0


def draw(of: Sequence[Source]) -> Picture:
    """A panel for each dtype, cache state and scope."""
    found = panels(of, by_size=False)
    every = [one for panel in found for one in panel.series]
    labels = [one.label for one in of]
    coloured = dict.fromkeys(one.variant for one in every if not is_baseline(one.best))
    look = looks(coloured, labels)
    right = room_for([*(one.variant for one in every), "peak 000,000 GFLOP/s"])
    heights = [height_for(len({one.variant for one in p.series}) + 1, HEIGHT_IN) for p in found]
    figure, axes = sheet("Speed against size, best tile", heights, right)
    for panel, ax in zip(found, axes, strict=True):
        _panel(ax, panel, look)
        head(ax, panel.title, source_key(labels))
    return figure


def _panel(axes: Axes, panel: Panel, look: dict[tuple[str, str], Look]) -> None:
    unit = "Gop/s" if panel.rows[0].dtype.startswith("int") else "GFLOP/s"
    ends: dict[str, EndLabel] = {}
    last = max(extent(row) for row in panel.rows)
    for one in panel.series:
        rows = best_by_size(one)
        end = rows[-1]
        at = look.get((one.variant, one.source.label))
        colour = at.colour if at else ink_of(axes)
        axes.plot(
            [extent(row) for row in rows],
            [row.gflops or 0.0 for row in rows],
            color=colour,
            marker=at.mark if at else "",
            markersize=5,
            linewidth=1.6 if at else 2.4,
            linestyle=at.dashes if at else looks_of_source(look, one),
        )
        figure = f"{number(end.gflops, 0)} {unit}"
        label = EndLabel(
            x=extent(end), y=end.gflops or 0.0, name=one.variant, figure=figure, colour=colour
        )
        ends.setdefault(one.variant, label)
    for source, series in grouped(panel.series, lambda one: one.source.label).items():
        peak = peak_gflops(row for one in series for row in one.rows)
        if peak:
            axes.axhline(peak, color=ink_of(axes), linewidth=1, linestyle=(0, (1, 2)))
            name = f"peak, {source}" if source else "peak"
            ends[name] = EndLabel(x=last, y=peak, name=name, figure=f"{number(peak, 0)} {unit}")
    log_ticks(axes, "y")
    size_ticks(axes, panel.rows)
    axes.set_ylabel(unit)
    label_ends(axes, list(ends.values()))


def looks_of_source(look: dict[tuple[str, str], Look], one: Series) -> object:
    """The dashes of a series' source."""
    return next((at.dashes for (_, label), at in look.items() if label == one.source.label), "-")


def best_by_size(one: Series) -> list[Row]:
    """The fastest row of each size, smallest first."""
    sizes = grouped(one.rows, lambda row: (row.m, row.n, row.k))
    return sorted((best_of(rows) for rows in sizes.values()), key=extent)
