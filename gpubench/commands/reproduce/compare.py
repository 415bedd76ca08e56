"""Compares an experiment's published figures with the measured rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from operator import attrgetter

from gpubench.commands.reproduce.experiment import (
    BEST,
    Cell,
    Column,
    Experiment,
    Selection,
    Series,
    identity,
    matches,
)
from gpubench.commands.reproduce.rules import Figure, Judgement, judge
from gpubench.hardware.metrics import percent
from gpubench.model import Device, Status
from gpubench.results.row import Row
from gpubench.stats.pairs import ratio_of_rounds

CLAIMED = 1.02  # a claim holds if no value of the interval is worse by more than this factor
OTHER_DEVICE = "other device: ratio only"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A measured figure for a label. The first entry of a label also has the published figure."""

    column: str
    figure: Figure
    published: float | None = None
    published_device: str = ""
    measured: float | None
    measured_low: float | None  # lower end of the 95 % interval
    measured_high: float | None
    unstable: bool  # the rounds of a time disagree: only the interval supports a claim
    ratio: float | None = None  # the measured speed divided by the published speed
    claim: str = ""  # whether the published figure holds
    published_percent_of_peak: float | None = None
    percent_of_peak: float | None
    cell: Cell
    row: Row | None  # None if no sweep that ran has the point


ROW = ("op", "variant", "tile", "dtype", "size", "scope", "status", "device")
_OWN = [field.name for field in fields(Entry) if field.name not in {"cell", "row"}]
CSV_COLUMNS = ("experiment", "series", "label", *_OWN, *ROW, "shape")

_Points = Sequence[tuple[Selection, Row]]


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """The rows that an experiment measured, and their comparison with the published figures."""

    experiment: Experiment
    rows: list[Row]
    devices: tuple[Device, ...]  # devices of the sweeps that ran
    interrupted: bool = False
    no_gpu: str = ""  # why the sweeps for a GPU did not run

    @property
    def failed(self) -> bool:
        """Whether a point was wrong or ended in an error."""
        return any(row.status in {Status.WRONG, Status.ERROR} for row in self.rows)

    @cached_property
    def entries(self) -> dict[str, list[list[Entry]]]:
        """Maps the name of each series to lists of entries. A list has the entries of one label."""
        points = [(identity(row.key), row) for row in self.rows]
        return {
            series.name: [
                [_entry(self.experiment, series, cell, column, points) for column in series.columns]
                for cell in series.cells
            ]
            for series in self.experiment.file.series
        }

    @cached_property
    def judgements(self) -> dict[str, list[Judgement]]:
        """Maps the name of each series to the judgements on the rules of the series."""
        every = self.experiment.file.series
        measured = {
            name: {
                first.cell.label: math.nan if first.unstable else first.measured
                for first, *_ in labels
                if first.measured is not None
            }
            for name, labels in self.entries.items()
        }
        sides = {series.name: series.published for series in every}, measured
        return {
            published.name: [
                judge(
                    rule,
                    *(
                        rule.concerned(published.figure, side[published.name], side)
                        for side in sides
                    ),
                )
                for rule in published.rules
            ]
            for published in every
        }

    def csv(self) -> list[list[object]]:
        """Return the lines of `reproduce.csv`, which has the columns `CSV_COLUMNS`."""
        lines = []
        for name, labels in self.entries.items():
            shape = "; ".join(judgement.sentence for judgement in self.judgements[name])
            for entries in labels:
                for entry in entries:
                    place = (self.experiment.name, name, entry.cell.label)
                    own = (getattr(entry, column) for column in _OWN)
                    row = (getattr(entry.row, column, None) for column in ROW)
                    lines.append([*place, *own, *row, shape if entry is entries[0] else ""])
        return lines


def _entry(
    experiment: Experiment, series: Series, cell: Cell, column: Column, points: _Points
) -> Entry:
    chosen = [_pick(selection, points) for selection in series.selections(cell, column)]
    row, over = (*chosen, None)[:2]
    figure = column.figure or series.figure
    low, measured, high = _interval(figure, row, over)
    unstable = any(timed is not None and timed.unstable for timed in chosen)
    entry = Entry(
        column=column.name,
        figure=figure,
        measured=measured,
        measured_low=low,
        measured_high=high,
        unstable=unstable,
        percent_of_peak=row.percent_of_peak if row and not unstable else None,
        cell=cell,
        row=row,
    )
    if cell.published is None or column != series.columns[0]:
        return entry
    return replace(
        entry,
        published=cell.published,
        published_device=cell.device,
        ratio=None if unstable else measured and figure.times_as_fast(measured, cell.published),
        claim=_claim(entry, cell.published, [row for _, row in points]),
        published_percent_of_peak=_published_percent(experiment, series, cell),
    )


def _claim(entry: Entry, published: float, rows: Sequence[Row]) -> str:
    """Return a text on whether a published figure holds, by the measured interval and `CLAIMED`.

    Rounds that disagree widen the interval, but do not prevent a verdict. A kernel that is wrong
    under one condition, such as `--launches alone`, counts as wrong at the problem's shape.
    """
    row, low, high = entry.row, entry.measured_low, entry.measured_high
    if row is None:
        return ""
    kernel = attrgetter("op", "variant", "tile", "dtype", "size", "layout")
    if any(r.status in {Status.WRONG, Status.ERROR} for r in rows if kernel(r) == kernel(row)):
        return "wrong at this shape"
    is_other = entry.cell.device not in {"", row.device}
    if is_other and entry.figure != Figure.SPEEDUP:
        return OTHER_DEVICE
    if low is None or high is None:
        return "not decided"
    slowest, fastest = sorted(entry.figure.times_as_fast(x, published) for x in (low, high))
    if slowest < 1 / CLAIMED <= fastest:
        return "not decided"
    holds = "holds" if slowest >= 1 / CLAIMED else "does not hold"
    return f"{holds} on this device" if is_other else holds


def _pick(selection: Selection, points: _Points) -> Row | None:
    """Return the selected row. If the selected tile is `best`, return the fastest row."""
    chosen = [row for point, row in points if matches(selection, point)]
    if BEST in selection.items():
        chosen.sort(key=lambda row: (row.status != Status.OK, row.median_us or 0.0))
    return chosen[0] if chosen else None


def _interval(figure: Figure, row: Row | None, over: Row | None) -> Sequence[float | None]:
    """Return the low end of a figure's 95 % interval, the figure, and the high end.

    The interval of a speedup comes from pairs: a round of the baseline and the same round of the
    row. With fewer than three rounds, there is no interval.
    """
    if row is None or not row.median_us:
        return None, None, None
    if figure == Figure.SPEEDUP:
        if over is None or not over.median_us:
            return None, None, None
        speedup = over.median_us / row.median_us
        if pairs := ratio_of_rounds(over.round_medians_us, row.round_medians_us):
            return min(speedup, pairs.low), speedup, max(speedup, pairs.high)
        return None, speedup, None
    times = row.ci_low_us, row.median_us, row.ci_high_us
    if figure == Figure.MS:
        return [time_us and time_us / 1e3 for time_us in times]
    rate = row.gbytes_per_s if figure == Figure.GBYTES_PER_S else row.gflops
    return [time_us and rate and rate * row.median_us / time_us for time_us in times[::-1]]


def _published_percent(experiment: Experiment, series: Series, cell: Cell) -> float | None:
    """Return a published rate in percent of the published peak, or None if no peak is known."""
    dtypes = {dtype for sweep, *_ in experiment.sweeps for dtype in sweep.dtypes}
    dtype = series.selections(cell, series.columns[0])[0].get("dtype", "/".join(dtypes))
    peak_tflops = experiment.file.devices.get(cell.device, {}).get(f"peak_{dtype}_tflops")
    if series.figure != Figure.GFLOPS or isinstance(peak_tflops, str) or peak_tflops is None:
        return None
    return percent(cell.published, 1e3 * peak_tflops)
