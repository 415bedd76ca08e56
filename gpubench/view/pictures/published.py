"""Published figures beside today's: the CSV that `gpubench reproduce` writes."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from matplotlib.axes import Axes

from gpubench.errors import UsageError
from gpubench.view.pictures import Theme
from gpubench.view.pictures.series import grouped
from gpubench.view.pictures.style import (
    Picture,
    compose,
    ink,
    label,
    legend,
    log_axis,
    look,
    size_axis,
)

COLUMNS = ("experiment", "series", "label", "column", "figure", "published", "measured")
"""What must be in the file; `published_device` and `device` may."""

UNITS = {"ms": "ms", "gflops": "GFLOP/s", "gbytes_per_s": "GB/s", "speedup": "times as fast"}
HEIGHT_IN, ROW_IN = 2.6, 0.3


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A label of a series: what was published, or measured, or both."""

    experiment: str
    series: str
    label: str
    """Its place on the axis: a tile, a size, a GPU."""

    column: str
    """Which of the series' measured columns; published figures stand with the first."""

    unit: str
    published: float | None
    measured: float | None
    published_device: str
    device: str


def read_published(path: Path) -> list[Figure] | None:
    """The figures of a file of `gpubench reproduce`; None if its head is another's.

    Raises UsageError if it cannot be read, or naming the line that does not fit.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            lines = csv.DictReader(file)
            if not set(COLUMNS) <= set(lines.fieldnames or ()):
                return None
            return [_figure(line, f"{path}, line {lines.line_num}") for line in lines]
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{path}: not a gpubench CSV: {error}") from error


def _figure(line: dict[str, str], where: str) -> Figure:
    try:
        return Figure(
            experiment=line["experiment"],
            series=line["series"],
            label=line["label"],
            column=line["column"],
            unit=UNITS.get(line["figure"], line["figure"]),
            published=float(line["published"]) if line["published"] else None,
            measured=float(line["measured"]) if line["measured"] else None,
            published_device=line.get("published_device") or "",
            device=line.get("device") or "",
        )
    except (TypeError, ValueError) as error:
        raise UsageError(f"{where}: {error}") from error


def draw(figures: Sequence[Figure], theme: Theme) -> Picture:
    """A panel a series, with a line for what was published and one a measured column.

    Raises UsageError if no series has published figures.
    """
    series = grouped(figures, lambda figure: (figure.experiment, figure.series)).values()
    found = [of_one for of_one in series if any(figure.published for figure in of_one)]
    if not found:
        raise UsageError("--kind published: no series has published figures")
    panels = [
        (f"{of_one[0].experiment}: {of_one[0].series}", partial(_panel, of_one)) for of_one in found
    ]
    return compose("Published and measured", panels, theme)


def _panel(figures: Sequence[Figure], axes: Axes) -> float:
    labels = list(dict.fromkeys(figure.label for figure in figures))
    # A line between points says something only where the labels are numbers.
    curves = len(labels) > 1 and all(name.isdecimal() and int(name) > 0 for name in labels)
    if curves:
        places = size_axis(axes, {name: int(name) for name in labels}, "")
    else:
        places = {name: float(index) for index, name in enumerate(labels)}
    lines = []
    for index, (name, points) in enumerate(_lines(figures)):
        points.sort(key=lambda point: places[point[0]])
        along, values = [places[name] for name, _ in points], [value for _, value in points]
        drawn = axes.plot(
            *((along, values) if curves else (values, along)),
            color=look(index - 1).colour if index else ink(),
            marker=look(index).marker,
            markersize=5 if curves else 7,
            linestyle=("-" if index else (0, (5, 1.5))) if curves else "",
            label=name,
        )
        lines += drawn
    log_axis(axes, "y" if curves else "x")
    if curves:
        axes.set_ylabel(figures[0].unit)
    else:
        axes.set_yticks(range(len(labels)), [label(name) for name in labels])
        axes.set_ylim(len(labels) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0)
        axes.set_xlabel(figures[0].unit)
    legend(axes, lines)
    return HEIGHT_IN if curves else max(0.8, ROW_IN * len(labels))


def _lines(figures: Sequence[Figure]) -> list[tuple[str, list[tuple[str, float]]]]:
    """What was published, then each measured column in the same unit: its name, its points."""
    then = [(figure.label, figure.published) for figure in figures if figure.published]
    devices = {figure.published_device for figure in figures} - {""}
    lines = [(label("published", *(devices if len(devices) == 1 else ())), then)]
    for column, of_column in grouped(figures, lambda figure: figure.column).items():
        now = [(figure.label, figure.measured) for figure in of_column if figure.measured]
        device = next((figure.device for figure in of_column if figure.device), "")
        name = "measured" if column == figures[0].column else column
        if now and of_column[0].unit == figures[0].unit:
            lines.append((label(name, device), now))
    return lines
