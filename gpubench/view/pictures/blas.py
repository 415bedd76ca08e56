"""Percent of the vendor's BLAS along the ladder: a bar a variant at its best tile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import matplotlib as mpl
from matplotlib.axes import Axes

from gpubench.errors import UsageError
from gpubench.row import Row
from gpubench.view.pictures.labels import short
from gpubench.view.pictures.series import (
    Panel,
    Source,
    extent,
    is_baseline,
    panels,
)
from gpubench.view.pictures.style import (
    COLOURS,
    GLYPH_IN,
    LINE_IN,
    Picture,
    head,
    ink_of,
    sheet,
)
from gpubench.view.tables import number

SHADES = (1.0, 0.65, 0.4, 0.25)
"""Opacity of the bars, one a source."""


def draw(of: Sequence[Source]) -> Picture:
    """A panel for each dtype, cache state and scope, at the largest size."""
    found = [panel for panel in panels(largest(of), by_size=True) if _rated(panel)]
    if not found:
        raise UsageError(
            "--kind blas: no row has percent_of_blas; sweep 'cublas' with the kernels, or use "
            "'gpubench compare-cublas'"
        )
    labels = [one.label for one in of]
    heights = [LINE_IN * 1.5 * len(_rated(one)) * len(labels) + 0.2 for one in found]
    names = [name for panel in found for name in _rated(panel)]
    library = found[0].rows[0].library or "the BLAS"
    left = 0.25 + GLYPH_IN * max(len(short(name)) for name in names)
    figure, axes = sheet(f"Speed in percent of {library}, best tile", heights, 0.3, left)
    for panel, ax in zip(found, axes, strict=True):
        _bars(ax, panel, labels, ax.get_position().width * figure.get_size_inches()[0])
    return figure


def largest(of: Sequence[Source]) -> list[Source]:
    """Only the rows of the largest size of each operation and dtype."""
    top: dict[tuple[str, str], float] = {}
    for row in (row for source in of for row in source.rows):
        name = (row.op, row.dtype)
        top[name] = max(top.get(name, 0.0), extent(row))
    return [
        replace(
            one,
            rows=tuple(row for row in one.rows if extent(row) == top[row.op, row.dtype]),
        )
        for one in of
    ]


def _rated(panel: Panel) -> dict[str, dict[str, Row]]:
    """The best row by variant and source, slowest variant first; the BLAS itself is the axis."""
    best: dict[str, dict[str, Row]] = {}
    for one in panel.series:
        if one.best.percent_of_blas is not None:
            best.setdefault(one.variant, {})[one.source.label] = one.best
    order = sorted(best, key=lambda name: max(_percent(row) for row in best[name].values()))
    return {name: best[name] for name in order}


def _rows(rated: dict[str, dict[str, Row]]) -> list[Row]:
    return [row for by_source in rated.values() for row in by_source.values()]


def _beside(row: Row) -> str:
    """What stands behind a bar."""
    tile = f"  tile {row.tile}" if row.tile else ""
    return f"{number(row.percent_of_blas, 1)} %{tile}"


def _bars(axes: Axes, panel: Panel, labels: Sequence[str], width_in: float) -> None:
    rated = _rated(panel)
    thick = 0.8 / len(labels)
    page = mpl.rcParams["figure.facecolor"]  # behind a bar's text no line shows
    for place, by_source in enumerate(rated.values()):
        for number_of_source, label in enumerate(labels):
            if label not in by_source:
                continue
            row = by_source[label]
            y = place + (number_of_source - (len(labels) - 1) / 2) * thick
            colour = ink_of(axes) if is_baseline(row) else COLOURS[0]
            axes.barh(y, _percent(row), thick * 0.9, color=colour, alpha=SHADES[number_of_source])
            axes.annotate(
                _beside(row),
                (_percent(row), y),
                xytext=(4, 0),
                textcoords="offset points",
                va="center_baseline",
                fontsize=axes.xaxis.label.get_fontsize(),
                bbox={"facecolor": page, "edgecolor": "none", "pad": 0.5},
            )
    high = max(100.0, *(_percent(row) for row in _rows(rated)))
    texts = [(_percent(row), GLYPH_IN * (len(_beside(row)) + 1)) for row in _rows(rated)]
    axes.set_xlim(0, max(high, *(end / (1 - min(0.8, text / width_in)) for end, text in texts)))
    axes.axvline(100, color=ink_of(axes), linewidth=1, linestyle=(0, (4, 2)))
    axes.set_ylim(len(rated) - 0.45, -0.55)
    axes.set_yticks(range(len(rated)), [short(name) for name in rated])
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.set_xticks(range(0, int(high) + 1, 20))
    axes.set_xlabel("percent")
    entries = [
        (label, {"marker": "s", "markersize": 8, "color": COLOURS[0], "alpha": shade})
        for label, shade in zip(labels, SHADES, strict=False)
        if label
    ]
    head(axes, panel.title, entries)


def _percent(row: Row) -> float:
    return row.percent_of_blas or 0.0
