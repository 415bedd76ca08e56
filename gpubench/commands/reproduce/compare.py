"""An experiment's published figures beside the measured rows."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property

from gpubench.commands.reproduce.experiment import (
    BEST,
    Cell,
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


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A measured figure of a label, and the published figure in the first of a label's entries.

    A line of `reproduce.csv` has these fields, `ROW` of the row, and the judgements.
    """

    experiment: str
    series: str
    label: str
    column: str
    figure: Figure
    published: float | None = None
    published_device: str = ""
    measured: float | None  # from the median time
    measured_low: float | None  # from the ends of the 95 % interval of the time
    measured_high: float | None
    unstable: bool  # the rounds of a time disagree, so that the figure supports no conclusion
    ratio: float | None = None  # how many times as fast as published
    claim: str = ""  # whether the published figure holds
    published_percent_of_peak: float | None = None
    percent_of_peak: float | None
    cell: Cell
    row: Row | None  # None: no sweep that ran has the point


CLAIMED = 1.02
"""A claim holds if no figure of the interval is worse than published by more than this factor."""

OTHER_DEVICE = "other device: ratio only"

ROW = ("op", "variant", "tile", "dtype", "size", "scope", "status", "device")
_OWN = [field.name for field in fields(Entry) if field.name not in {"cell", "row"}]
CSV_COLUMNS = (*_OWN, *ROW, "shape")


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """The result of an experiment."""

    experiment: Experiment
    rows: list[Row]
    devices: tuple[Device, ...]  # of the sweeps that ran
    interrupted: bool = False
    no_gpu: str = ""  # why the sweeps for a GPU did not run

    @property
    def failed(self) -> bool:
        """Whether a point was wrong or ended in an error."""
        return any(row.status in {Status.WRONG, Status.ERROR} for row in self.rows)

    @cached_property
    def entries(self) -> dict[str, list[list[Entry]]]:
        """By name of the series: the entries of each label, one per column."""
        points = [(identity(row.key), row) for row in self.rows]
        return {
            series.name: [_entries(self.experiment, series, cell, points) for cell in series.cells]
            for series in self.experiment.series
        }

    @cached_property
    def judgements(self) -> dict[str, list[Judgement]]:
        """By name of the series: whether its rules hold."""
        sides = {
            series.name: (series.published, _measured(self.entries[series.name]))
            for series in self.experiment.series
        }
        return {
            series.name: [
                judge(rule, series.figure, sides[series.name], sides.get(rule.than, ({}, {})))
                for rule in series.rules
            ]
            for series in self.experiment.series
        }

    def csv(self) -> list[list[object]]:
        """Return the lines of `reproduce.csv`, by `CSV_COLUMNS`."""
        lines = []
        for name, labels in self.entries.items():
            shape = "; ".join(judgement.sentence for judgement in self.judgements[name])
            for entries in labels:
                for entry in entries:
                    row = (getattr(entry.row, column, None) for column in ROW)
                    last = shape if entry is entries[0] else ""
                    lines.append([*(getattr(entry, own) for own in _OWN), *row, last])
        return lines


def _measured(labels: Sequence[Sequence[Entry]]) -> dict[str, float | None]:
    """Return the figures of the first column by label; None where the rounds disagree."""
    first = [entries[0] for entries in labels if entries[0].measured is not None]
    return {entry.label: None if entry.unstable else entry.measured for entry in first}


_Points = Sequence[tuple[Selection, Row]]


def _entries(experiment: Experiment, series: Series, cell: Cell, points: _Points) -> list[Entry]:
    entries: list[Entry] = []
    for column in series.columns:
        row = _pick(series.selection(cell, column), points)
        over = _pick(series.baseline(cell, column), points)
        figure = column.figure or series.figure
        low, measured, high = _interval(figure, row, over) or (None, None, None)
        unstable = any(timed is not None and timed.unstable for timed in (row, over))
        published = None if entries else cell.published
        ratio = None
        if published and measured and not unstable:
            ratio = figure.times_as_fast(measured, published)
        entries.append(
            Entry(
                experiment=experiment.name,
                series=series.name,
                label=cell.label,
                column=column.name,
                figure=figure,
                published=published,
                published_device="" if entries else cell.device,
                measured=measured,
                measured_low=low,
                measured_high=high,
                unstable=unstable,
                ratio=ratio,
                published_percent_of_peak=_published_percent(experiment, series, cell)
                if published
                else None,
                percent_of_peak=row.percent_of_peak if row and not unstable else None,
                cell=cell,
                row=row,
            )
        )
    entries[0] = replace(entries[0], claim=_claim(entries[0]))
    return entries


def _claim(entry: Entry) -> str:
    """Return whether a published figure holds within `CLAIMED`, by the interval of the measured."""
    row, figure, low, high = entry.row, entry.figure, entry.measured_low, entry.measured_high
    if entry.published is None or row is None:
        return ""
    if row.status in {Status.WRONG, Status.ERROR}:
        return "wrong at this shape"
    is_other = entry.published_device not in {"", row.device}
    if is_other and figure != Figure.SPEEDUP:
        return OTHER_DEVICE
    if low is None or high is None or entry.unstable:
        return "not decided"
    slowest, fastest = sorted(figure.times_as_fast(x, entry.published) for x in (low, high))
    if slowest < 1 / CLAIMED <= fastest:
        return "not decided"
    holds = "holds" if slowest >= 1 / CLAIMED else "does not hold"
    return f"{holds} on this device" if is_other else holds


def _pick(selection: Selection | None, points: _Points) -> Row | None:
    """Return the row that a selection means: the fastest if any tile will do."""
    if selection is None:
        return None
    chosen = [row for point, row in points if matches(selection, point)]
    if BEST in selection.items():
        chosen.sort(key=lambda row: (row.status != Status.OK, row.median_us or 0.0))
    return chosen[0] if chosen else None


def _interval(figure: Figure, row: Row | None, over: Row | None) -> tuple[float, ...] | None:
    """Return the lowest figure that the times allow, that of the medians, and the highest.

    Rows of fewer than three rounds have no interval: their median counts.
    """
    times = [
        (r.ci_low_us or r.median_us, r.median_us, r.ci_high_us or r.median_us)
        for r in (row, over)
        if r
    ]
    fast, median, slow = times[0] if times else (None, None, None)
    if row is None or not fast or not median or not slow:
        return None
    if figure == Figure.MS:
        return fast / 1e3, median / 1e3, slow / 1e3
    if figure == Figure.SPEEDUP:
        low, middle, high = times[-1] if over else (None, None, None)
        return (low / slow, middle / median, high / fast) if low and middle and high else None
    rate = row.gflops if figure == Figure.GFLOPS else row.gbytes_per_s
    return (rate * median / slow, rate, rate * median / fast) if rate else None


def _published_percent(experiment: Experiment, series: Series, cell: Cell) -> float | None:
    """Return the percentage of the published peak, for a rate of a single dtype."""
    dtypes = {dtype for sweep, *_ in experiment.sweeps for dtype in sweep.dtypes}
    dtype = series.selection(cell, series.columns[0]).get("dtype", "/".join(dtypes))
    peak_tflops = experiment.file.devices.get(cell.device, {}).get(f"peak_{dtype}_tflops")
    if series.figure != Figure.GFLOPS or isinstance(peak_tflops, str) or peak_tflops is None:
        return None
    return percent(cell.published, 1e3 * peak_tflops)
