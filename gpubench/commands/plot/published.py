"""Pictures of the CSV that `gpubench reproduce` writes: published and measured figures."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from operator import itemgetter
from pathlib import Path

from matplotlib.axes import Axes

from gpubench.errors import UsageError
from gpubench.results.columns import MAX_HEADER, in_range, opened, unguarded
from gpubench.text import clean
from gpubench.view.pictures import Theme, style
from gpubench.view.pictures.series import grouped

COLUMNS = {"experiment", "series", "label", "column", "figure", "published", "measured"}
"""Columns that the file must have. It may also have `published_device` and `device`."""

UNITS = {"ms": "time, ms", "gflops": "GFLOP/s", "gbytes_per_s": "GB/s", "speedup": "times as fast"}
HEIGHT_IN, ROW_IN = 2.6, 0.3


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A label of a series: its published figure, its measured figure, or both."""

    experiment: str
    series: str
    label: str
    """The place on the axis: a tile, a size, a GPU."""

    column: str
    """The measured column of the series. Published figures stand with the first column."""

    unit: str
    published: float | None
    measured: float | None
    unstable: bool
    """Whether the rounds of the measured figure disagree."""

    tile: str
    size: str
    published_device: str
    device: str


def read_published(path: Path) -> list[Figure] | None:
    """Return the figures of a file of `gpubench reproduce`; None for another kind of file.

    Raises UsageError for a file that cannot be read, with the number of an invalid line.
    """
    with opened(path) as file:
        lines = csv.DictReader(chain([file.readline(MAX_HEADER)], file), restval="")
        if not set(lines.fieldnames or ()) >= COLUMNS:
            return None
        try:
            return [
                Figure(
                    experiment=line["experiment"],
                    series=line["series"],
                    label=line["label"],
                    column=line["column"],
                    unit=UNITS.get(line["figure"], line["figure"]),
                    published=in_range(float(line["published"])) if line["published"] else None,
                    measured=in_range(float(line["measured"])) if line["measured"] else None,
                    unstable=line.get("unstable") == "True",
                    tile=line.get("tile", ""),
                    size=line.get("size", ""),
                    published_device=line.get("published_device", ""),
                    device=line.get("device", ""),
                )
                for line in (
                    {name: clean(unguarded(text)) for name, text in line.items() if name}
                    for line in lines
                )
            ]
        except UnicodeDecodeError:
            raise
        except ValueError as error:
            raise UsageError(f"{path}, line {lines.line_num}: {error}") from error


def draw(figures: Sequence[Figure], theme: Theme) -> style.Picture:
    """Draw a panel per series: a line of published figures, and one for each measured column.

    Raises UsageError if no series has published figures.
    """
    columns = list(dict.fromkeys(figure.column for figure in figures))
    panels = [
        (f"{experiment}: {series}", partial(_panel, group, columns))
        for (experiment, series), group in grouped(
            figures, lambda figure: (figure.experiment, figure.series)
        ).items()
        if any(figure.published for figure in group)
    ]
    if not panels:
        raise UsageError("--kind published: no series has published figures")
    style.require_drawable(len(panels), len({figure.label for figure in figures}))
    return style.compose("Published and measured", panels, theme)


def _panel(figures: Sequence[Figure], columns: Sequence[str], axes: Axes) -> float:
    """Draw the figures of a series; a column has the same colour in all panels."""
    labels = list(dict.fromkeys(figure.label for figure in figures))
    # A line between points has a meaning only if the labels are numbers.
    curves = len(labels) > 1 and all(name.isdecimal() and int(name) > 0 for name in labels)
    if curves:
        places = style.size_axis(axes, {name: int(name) for name in labels}, _axis(figures))
    else:
        places = {name: float(index) for index, name in enumerate(labels)}
    lines = []
    for column, label, values in _lines(figures):
        points = sorted(((places[f.label], value, f) for f, value in values), key=itemgetter(0))
        along, across, marked = zip(*points, strict=True)
        at = (along, across) if curves else (across, along)
        look = style.look(columns.index(column)) if column else style.Look("", "x")
        lines += axes.plot(
            *at,
            **look.options,
            markersize=5 if curves else 7,
            linestyle=("-" if column else (0, (5, 1.5))) if curves else "",
            label=label,
        )
        if column:
            style.ring(axes, marked, list(zip(*at, strict=True)))
    style.log_axis(axes, "y" if curves else "x")
    if curves:
        style.y_title(axes, figures[0].unit)
    else:
        axes.set_xlabel(figures[0].unit)
        style.name_rows(axes, [style.label(name) for name in labels])
        style.y_title(axes, _axis(figures))
    style.legend(axes, lines)
    return HEIGHT_IN if curves else max(0.8, ROW_IN * len(labels))


def _axis(figures: Sequence[Figure]) -> str:
    """Return what the labels are: tiles, sizes or neither."""
    for column, title in (("tile", "tile size"), ("size", "matrix size")):
        values = [(figure.label, value) for figure in figures if (value := getattr(figure, column))]
        if values and all(label == value for label, value in values):
            return title
    return ""


def _lines(figures: Sequence[Figure]) -> list[tuple[str, str, list[tuple[Figure, float]]]]:
    """Return the column, name and points of each line of the panel's unit.

    The first line is of the published figures and has no column.
    """
    before = [(figure, figure.published) for figure in figures if figure.published]
    devices = {figure.published_device for figure in figures} - {""}
    lines = [("", style.label("published", *(devices if len(devices) == 1 else ())), before)]
    for column, group in grouped(figures, lambda figure: figure.column).items():
        now = [(figure, figure.measured) for figure in group if figure.measured]
        device = next((figure.device for figure in group if figure.device), "")
        name = "measured" if column == figures[0].column else column
        if now and group[0].unit == figures[0].unit:
            lines.append((column, style.label(name, device), now))
    return lines
