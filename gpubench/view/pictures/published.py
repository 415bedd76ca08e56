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
from gpubench.results.row import MAX_HEADER, in_range, opened, unguarded
from gpubench.text import clean
from gpubench.view.pictures import Theme, style
from gpubench.view.pictures.series import grouped

COLUMNS = {"experiment", "series", "label", "column", "figure", "published", "measured"}
"""Columns that the file must have. It may also have `published_device` and `device`."""

UNITS = {"ms": "ms", "gflops": "GFLOP/s", "gbytes_per_s": "GB/s", "speedup": "times as fast"}
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
    """None if not measured, and if rounds disagree."""

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
                    measured=in_range(float(line["measured"]))
                    if line["measured"] and line.get("unstable") != "True"
                    else None,
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
    panels = [
        (f"{experiment}: {series}", partial(_panel, group))
        for (experiment, series), group in grouped(
            figures, lambda figure: (figure.experiment, figure.series)
        ).items()
        if any(figure.published for figure in group)
    ]
    if not panels:
        raise UsageError("--kind published: no series has published figures")
    style.require_drawable(len(panels), len({figure.label for figure in figures}))
    return style.compose("Published and measured", panels, theme)


def _panel(figures: Sequence[Figure], axes: Axes) -> float:
    labels = list(dict.fromkeys(figure.label for figure in figures))
    # A line between points has a meaning only if the labels are numbers.
    curves = len(labels) > 1 and all(name.isdecimal() and int(name) > 0 for name in labels)
    if curves:
        places = style.size_axis(axes, {name: int(name) for name in labels}, "")
    else:
        places = {name: float(index) for index, name in enumerate(labels)}
    lines = []
    for index, (label, values) in enumerate(_lines(figures)):
        points = sorted(((places[name], value) for name, value in values), key=itemgetter(0))
        along, across = zip(*points, strict=True)
        lines += axes.plot(
            *((along, across) if curves else (across, along)),
            color=style.look(index - 1).colour if index else style.ink(),
            marker=style.look(index).marker,
            markersize=5 if curves else 7,
            linestyle=("-" if index else (0, (5, 1.5))) if curves else "",
            label=label,
        )
    style.log_axis(axes, "y" if curves else "x")
    axes.set(**{f"{'y' if curves else 'x'}label": figures[0].unit})
    if not curves:
        style.name_rows(axes, [style.label(name) for name in labels])
    style.legend(axes, lines)
    return HEIGHT_IN if curves else max(0.8, ROW_IN * len(labels))


def _lines(figures: Sequence[Figure]) -> list[tuple[str, list[tuple[str, float]]]]:
    """Return the name and points of the published line and of each measured line of its unit."""
    before = [(figure.label, figure.published) for figure in figures if figure.published]
    devices = {figure.published_device for figure in figures} - {""}
    lines = [(style.label("published", *(devices if len(devices) == 1 else ())), before)]
    for column, group in grouped(figures, lambda figure: figure.column).items():
        now = [(figure.label, figure.measured) for figure in group if figure.measured]
        device = next((figure.device for figure in group if figure.device), "")
        name = "measured" if column == figures[0].column else column
        if now and group[0].unit == figures[0].unit:
            lines.append((style.label(name, device), now))
    return lines
