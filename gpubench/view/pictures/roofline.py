"""The roofline: each variant's speed over arithmetic intensity, under memory and arithmetic.

Williams, Waterman and Patterson, Roofline, 2009. Intensity counts the bytes that must move (each
operand once): a kernel that loads more than that falls below the roof, none can stand above it
while its operands come from memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes

from gpubench.errors import UsageError
from gpubench.row import Row
from gpubench.view.pictures.labels import EndLabel, height_for, label_ends, room_for
from gpubench.view.pictures.series import (
    Panel,
    Source,
    grouped,
    is_baseline,
    panels,
    peak_gflops,
)
from gpubench.view.pictures.sizes import best_by_size
from gpubench.view.pictures.style import (
    Look,
    Picture,
    head,
    ink_of,
    log_ticks,
    looks,
    sheet,
    source_key,
)
from gpubench.view.tables import number

HEIGHT_IN = 4.2


def draw(of: Sequence[Source]) -> Picture:
    """A panel for each dtype, cache state and scope; a mark a size and variant."""
    found = [one for one in panels(of, by_size=False) if peak_gflops(one.rows)]
    if not found:
        raise UsageError("--kind roofline: no row has percent_of_peak, so the roof is not known")
    every = [one for panel in found for one in panel.series]
    labels = [one.label for one in of]
    coloured = [one.variant for one in every if not is_baseline(one.best)]
    look = looks(dict.fromkeys((*coloured, *(one.variant for one in every))), labels)
    right = room_for([*(one.variant for one in every), "peak 000,000 GFLOP/s"])
    heights = [height_for(len({one.variant for one in p.series}) + 1, HEIGHT_IN) for p in found]
    figure, axes = sheet("Roofline, best tile of each size", heights, right)
    for panel, ax in zip(found, axes, strict=True):
        _panel(ax, panel, look)
        head(ax, panel.title, source_key(labels))
    return figure


def _panel(axes: Axes, panel: Panel, look: dict[tuple[str, str], Look]) -> None:
    ends: dict[str, EndLabel] = {}
    intensities = [row.arithmetic_intensity or 1.0 for row in panel.rows]
    ridges = [ridge for one in panel.series if (ridge := _ridge(one.rows, one.source))]
    low, high = min(*intensities, *ridges) / 4, max(*intensities, *ridges) * 1.3
    for series in grouped(panel.series, lambda one: one.source.label).values():
        rows = [row for one in series for row in one.rows]
        _roof(axes, rows, series[0].source, (low, high))
    for one in panel.series:
        at = look[one.variant, one.source.label]
        colour = ink_of(axes) if is_baseline(one.best) else at.colour
        best = best_by_size(one)
        axes.plot(
            [row.arithmetic_intensity or 1.0 for row in best],
            [row.gflops or 0.0 for row in best],
            color=colour,
            marker=at.mark,
            markersize=6,
            linestyle=at.dashes,
            linewidth=1,
        )
        end = best[-1]
        ends.setdefault(
            one.variant,
            EndLabel(
                x=end.arithmetic_intensity or 1.0,
                y=end.gflops or 0.0,
                name=one.variant,
                figure=f"{number(end.percent_of_peak, 1)} % of peak",
                colour=colour,
            ),
        )
    axes.set_xlim(low, high)
    log_ticks(axes, "x")
    log_ticks(axes, "y")
    axes.set_xlabel("arithmetic intensity, FLOP per byte that must move")
    axes.set_ylabel("GFLOP/s")
    label_ends(axes, list(ends.values()))


def _ridge(rows: Sequence[Row], source: Source) -> float | None:
    """FLOP per byte at which memory and arithmetic take equally long; None if not known."""
    peak, bandwidth = peak_gflops(rows), source.copy_gbytes_per_s
    return peak / bandwidth if peak and bandwidth else None


def _roof(axes: Axes, rows: Sequence[Row], source: Source, limits: tuple[float, float]) -> None:
    peak, ridge = peak_gflops(rows), _ridge(rows, source)
    if not peak:
        return
    low, high = limits
    of = f", {source.label}" if source.label else ""
    line: dict[str, Any] = {"color": ink_of(axes), "linewidth": 1.4}
    text: dict[str, Any] = {
        "textcoords": "offset points",
        "fontsize": axes.xaxis.label.get_fontsize(),
    }
    axes.plot([ridge or low, high], [peak, peak], **line)
    name = f"peak {number(peak, 0)} GFLOP/s{of}"
    axes.annotate(name, (high, peak), xytext=(0, 4), ha="right", **text)
    if ridge:
        axes.plot([low, ridge], [peak * low / ridge, peak], **line)
        name = f"copy {number(peak / ridge, 0)} GB/s{of}"
        axes.annotate(name, (low, peak * low / ridge), xytext=(8, 0), va="top", **text)
