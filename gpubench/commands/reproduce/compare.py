"""An experiment's published figures beside the rows that were measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from gpubench.commands.reproduce.experiment import (
    BEST,
    SELECTABLE,
    Cell,
    Experiment,
    Selection,
    Series,
    matches,
)
from gpubench.commands.reproduce.rules import Figure, Figures, Judgement, Rule, judge
from gpubench.hardware.metrics import percent
from gpubench.model import Device, Status
from gpubench.row import Row


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A measured figure and where it comes from."""

    figure: Figure
    value: float | None
    row: Row | None  # None: no sweep that ran has it


@dataclass(frozen=True, kw_only=True)
class Line:
    """A published figure, or the place of one, and the measured figures."""

    cell: Cell
    figures: tuple[Measured, ...]  # one for each column; the first is compared with the published
    ratio: float | None  # how many times as fast as published
    published_percent_of_peak: float | None


@dataclass(frozen=True, kw_only=True)
class Compared:
    """A series with its lines, and whether its shape holds."""

    series: Series
    lines: tuple[Line, ...]
    judgements: tuple[Judgement, ...]


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """What came of an experiment."""

    experiment: Experiment
    rows: list[Row]
    devices: tuple[Device, ...]  # that its sweeps ran on
    interrupted: bool = False
    no_gpu: str = ""  # why its sweeps for a GPU did not run

    @property
    def failed(self) -> bool:
        """Whether a point was wrong or ended in an error."""
        return any(row.status in {Status.WRONG, Status.ERROR} for row in self.rows)

    @cached_property
    def compared(self) -> list[Compared]:
        """Every series of the experiment beside its rows, judged."""
        published: dict[str, Figures] = {"": {}}
        measured: dict[str, Figures] = {"": {}}
        lines: dict[str, tuple[Line, ...]] = {}
        for series in self.experiment.series:
            found = tuple(_line(self.experiment, series, cell, self.rows) for cell in series.cells)
            values = {line.cell.label: line.figures[0].value for line in found}
            lines[series.name], published[series.name] = found, series.published
            measured[series.name] = {at: value for at, value in values.items() if value is not None}

        def judged(series: Series, rule: Rule) -> Judgement:
            slower = (published[rule.slower], measured[rule.slower])
            return judge(rule, series.figure, published[series.name], measured[series.name], slower)

        return [
            Compared(
                series=series,
                lines=lines[series.name],
                judgements=tuple(judged(series, rule) for rule in series.rules),
            )
            for series in self.experiment.series
        ]


def _line(experiment: Experiment, series: Series, cell: Cell, rows: Sequence[Row]) -> Line:
    figures = []
    for column in series.columns:
        row = _pick(series.selection(cell, column), rows)
        baseline = series.baseline(cell, column)
        over = _pick(baseline, rows) if baseline else None
        figure = series.figure_of(column)
        figures.append(Measured(figure=figure, value=_value(figure, row, over), row=row))
    ratio = None
    if cell.published is not None and (ours := figures[0].value) is not None:
        ratio = series.figure.times_as_fast(ours, cell.published)
    return Line(
        cell=cell,
        figures=tuple(figures),
        ratio=ratio,
        published_percent_of_peak=_published_percent(experiment, series, cell),
    )


def _pick(wanted: Selection, rows: Sequence[Row]) -> Row | None:
    """The row that a selection means: the fastest if any tile will do."""
    found = [
        row for row in rows if matches(wanted, {key: str(getattr(row, key)) for key in SELECTABLE})
    ]
    if wanted.get("tile") == BEST:
        found.sort(key=lambda row: (row.status != Status.OK, row.median_us or 0.0))
    return found[0] if found else None


def _value(figure: Figure, row: Row | None, over: Row | None) -> float | None:
    if row is None or row.median_us is None:
        return None
    if figure == Figure.SPEEDUP:
        return over.median_us / row.median_us if over and over.median_us else None
    rates = {Figure.GFLOPS: row.gflops, Figure.GBYTES_PER_S: row.gbytes_per_s}
    return rates.get(figure, row.median_us / 1e3)


def _published_percent(experiment: Experiment, series: Series, cell: Cell) -> float | None:
    """Percent of the published device's published peak, for a rate in a dtype that is certain."""
    dtypes = {dtype for sweep in experiment.sweeps for dtype in sweep.sweep.dtypes}
    named = series.selection(cell, series.columns[0]).get("dtype")
    dtype = named or (dtypes.pop() if len(dtypes) == 1 else "")
    facts = experiment.devices.get(series.device_of(cell), {})
    peak_tflops = facts.get(f"peak_{dtype}_tflops")
    if series.figure != Figure.GFLOPS or isinstance(peak_tflops, str) or peak_tflops is None:
        return None
    return percent(cell.published, 1e3 * peak_tflops)
