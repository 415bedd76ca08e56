"""Speed against size: each variant at its best tile, under the peak and beside the BLAS."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from gpubench.model import OPERATIONS
from gpubench.row import Row
from gpubench.view.pictures.labels import EndLabel, height_for, label_ends, room_for
from gpubench.view.pictures.series import (
    Panel,
    Series,
    Source,
    extent,
    grouped,
    is_baseline,
    panels,
    peak_gflops,
)
from gpubench.view.pictures.style import (
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
from gpubench.view.tables import best_of, number

HEIGHT_IN = 4.0


def draw(of: Sequence[Source]) -> Picture:
    """A panel for each dtype, cache state and scope."""
    found = panels(of, by_size=False)
    every = [one for panel in found for one in panel.series]
    labels = [one.label for one in of]
    coloured = dict.fromkeys(one.variant for one in every if not is_baseline(one.best))
    look = looks(coloured, labels)
    right = room_for(
        [*(one.variant for one in every), *(f"copy, {one.label}" for one in of), "000,000 GFLOP/s"]
    )
    heights = [height_for(len({one.variant for one in p.series}) + 1, HEIGHT_IN) for p in found]
    figure, axes = sheet("Speed against size, best tile", heights, right)
    for panel, ax in zip(found, axes, strict=True):
        _panel(ax, panel, look)
        head(ax, panel.title, source_key(labels))
    return figure


def _panel(axes: Axes, panel: Panel, look: dict[tuple[str, str], Look]) -> None:
    rate = _rate(panel.rows[0])
    ends: dict[str, EndLabel] = {}
    places = size_ticks(axes, panel.rows)
    for one in panel.series:
        rows = best_by_size(one)
        at = look.get((one.variant, one.source.label))
        colour = at.colour if at else ink_of(axes)
        values = [rate.of(row) or 0.0 for row in rows]
        axes.plot(
            [places[row.size] for row in rows],
            values,
            color=colour,
            marker=at.mark if at else "",
            markersize=5,
            linewidth=1.6 if at else 2.4,
            linestyle=at.dashes if at else looks_of_source(look, one),
        )
        label = EndLabel(
            x=places[rows[-1].size],
            y=values[-1],
            name=one.variant,
            figure=f"{number(values[-1], 0)} {rate.unit}",
            colour=colour,
        )
        ends.setdefault(one.variant, label)
    for source, series in grouped(panel.series, lambda one: one.source).items():
        top = rate.limit(source, [row for one in series for row in one.rows])
        if top:
            axes.axhline(top, color=ink_of(axes), linewidth=1, linestyle=(0, (1, 2)))
            name = f"{rate.limited_by}, {source.label}" if source.label else rate.limited_by
            figure = f"{number(top, 0)} {rate.unit}"
            ends[name] = EndLabel(x=max(places.values()), y=top, name=name, figure=figure)
    log_ticks(axes, "y")
    axes.set_ylabel(rate.unit)
    label_ends(axes, list(ends.values()))


@dataclass(frozen=True, kw_only=True)
class Rate:
    """The figure of merit of an operation."""

    unit: str
    of: Callable[[Row], float | None]
    limited_by: str
    limit: Callable[[Source, Sequence[Row]], float | None]


def _rate(row: Row) -> Rate:
    """Bytes a second under a copy's where memory sets the pace, else operations under the peak."""
    if row.op in OPERATIONS and OPERATIONS[row.op].bandwidth_bound:
        return Rate(
            unit="GB/s",
            of=lambda row: row.gbytes_per_s,
            limited_by="copy",
            limit=lambda source, _rows: source.copy_gbytes_per_s,
        )
    return Rate(
        unit="Gop/s" if row.dtype.startswith("int") else "GFLOP/s",
        of=lambda row: row.gflops,
        limited_by="peak",
        limit=lambda _source, rows: peak_gflops(rows),
    )


def looks_of_source(look: dict[tuple[str, str], Look], one: Series) -> object:
    """The dashes of a series' source."""
    return next((at.dashes for (_, label), at in look.items() if label == one.source.label), "-")


def best_by_size(one: Series) -> list[Row]:
    """The fastest row of each size, smallest first."""
    sizes = grouped(one.rows, lambda row: (row.m, row.n, row.k))
    return sorted((best_of(rows) for rows in sizes.values()), key=extent)
