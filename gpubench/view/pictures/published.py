"""Published figures beside today's: the CSV that `gpubench reproduce` writes."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes

from gpubench.errors import UsageError
from gpubench.view.pictures.labels import EndLabel, label_ends, room_for, short
from gpubench.view.pictures.series import grouped
from gpubench.view.pictures.style import (
    COLOURS,
    LINE_IN,
    MARKS,
    Picture,
    fixed_ticks,
    head,
    ink_of,
    log_ticks,
    settings,
    sheet,
)

COLUMNS = ("experiment", "series", "label", "column", "figure", "published", "measured")
"""What must be in the file; `published_device` and `device` may."""

UNITS = {"ms": "ms", "gflops": "GFLOP/s", "gbytes_per_s": "GB/s", "speedup": "times as fast"}
HEIGHT_IN = 2.6

Entries = list[tuple[str, dict[str, Any]]]
"""Of a picture's key."""


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


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of a panel."""

    name: str
    about: str
    points: tuple[tuple[str, float], ...]
    """Labels and figures."""


def is_published(path: Path) -> bool:
    """Whether a file is one of `gpubench reproduce`, by its head. UsageError if it is no file."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            names = next(csv.reader(file), [])
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{path}: not a gpubench CSV: {error}") from error
    return set(COLUMNS) <= set(names)


def read_published(path: Path) -> list[Figure]:
    """The file's figures. Raises UsageError naming the line that does not fit."""
    figures = []
    with path.open(newline="", encoding="utf-8-sig") as file:
        lines = csv.DictReader(file)
        for line in lines:
            try:
                figures.append(
                    Figure(
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
                )
            except (TypeError, ValueError) as error:
                raise UsageError(f"{path}, line {lines.line_num}: {error}") from error
    return figures


def draw(figures: Sequence[Figure], theme: str) -> Picture:
    """A panel a series, with a line for what was published and one a measured column.

    Raises UsageError if no series has both.
    """
    panels = {
        name: (some, _lines(some))
        for name, some in grouped(figures, lambda one: (one.experiment, one.series)).items()
        if any(one.published for one in some)
    }
    if not panels:
        raise UsageError("--kind published: no series has published figures")
    heights = [
        HEIGHT_IN if _numeric(some) else max(0.8, LINE_IN * 2.4 * len(_labels(some)))
        for some, _ in panels.values()
    ]
    every = [line for _, lines in panels.values() for line in lines]
    with mpl.rc_context(settings(theme)):
        right = room_for(text for line in every for text in (line.name, line.about))
        named = [
            label for some, _ in panels.values() if not _numeric(some) for label in _labels(some)
        ]
        left = max(0.85, room_for(named) - 0.1) if named else 0.85
        figure, axes = sheet("Published and measured", heights, right, left)
        for ((experiment, series), (some, lines)), ax in zip(panels.items(), axes, strict=True):
            key = (_curves if _numeric(some) else _dots)(ax, lines, _labels(some), some[0].unit)
            head(ax, f"{experiment}: {series}", key)
    return figure


def _lines(figures: Sequence[Figure]) -> list[Line]:
    """What was published, then each measured column in the same unit."""
    then = [(one.label, one.published) for one in figures if one.published]
    devices = dict.fromkeys(one.published_device for one in figures if one.published_device)
    about = next(iter(devices)) if len(devices) == 1 else ""
    lines = [Line(name="published", about=about, points=tuple(then))]
    for column, some in grouped(figures, lambda one: one.column).items():
        now = tuple((one.label, one.measured) for one in some if one.measured)
        today = next((one.device for one in some if one.device), "")
        name = "measured" if column == figures[0].column else column
        if now and some[0].unit == figures[0].unit:
            lines.append(Line(name=name, about=today, points=now))
    return lines


def _labels(figures: Sequence[Figure]) -> list[str]:
    return list(dict.fromkeys(one.label for one in figures))


def _numeric(figures: Sequence[Figure]) -> bool:
    """Whether the labels are numbers, so that a line between them says something."""
    labels = _labels(figures)
    return len(labels) > 1 and all(label.isdecimal() and int(label) > 0 for label in labels)


def _curves(axes: Axes, lines: Sequence[Line], labels: Sequence[str], unit: str) -> Entries:
    ends = []
    places = sorted(int(label) for label in labels)
    for number, line in enumerate(lines):
        points = sorted((int(label), value) for label, value in line.points)
        colour = COLOURS[number - 1] if number else ink_of(axes)
        axes.plot(
            [place for place, _ in points],
            [value for _, value in points],
            color=colour,
            marker=MARKS[number % len(MARKS)],
            markersize=5,
            linestyle="-" if number else (0, (5, 1.5)),
        )
        x, y = points[-1]
        ends.append(EndLabel(x=x, y=y, name=line.name, figure=line.about, colour=colour))
    axes.set_xscale("log", base=2)
    axes.set_xlim(places[0] / 1.12, places[-1] * 1.12)
    fixed_ticks(axes, places, [str(place) for place in places])
    log_ticks(axes, "y")
    axes.set_ylabel(unit)
    label_ends(axes, ends)
    return []


def _dots(axes: Axes, lines: Sequence[Line], labels: Sequence[str], unit: str) -> Entries:
    """One row a label, a mark a line: labels that are names have no order."""
    entries: Entries = []
    for number, line in enumerate(lines):
        colour = COLOURS[number - 1] if number else ink_of(axes)
        mark: dict[str, Any] = {
            "marker": MARKS[number % len(MARKS)],
            "markersize": 7,
            "color": colour,
        }
        places = [labels.index(label) for label, _ in line.points]
        axes.plot([value for _, value in line.points], places, linestyle="", **mark)
        entries.append((", ".join(filter(None, (line.name, line.about))), mark))
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.set_yticks(range(len(labels)), [short(label) for label in labels])
    axes.tick_params(axis="y", length=0)
    log_ticks(axes, "x")
    axes.set_xlabel(unit)
    return entries
