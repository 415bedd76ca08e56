"""An experiment's published figures beside the rows that were measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpubench.commands.reproduce.experiments import (
    BEST,
    SELECTABLE,
    Cell,
    Column,
    Experiment,
    Selection,
    Series,
    matches,
)
from gpubench.commands.reproduce.published import Figure, Judgement, judge
from gpubench.hardware.metrics import percent
from gpubench.model import Status
from gpubench.row import Row


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A measured figure and where it comes from."""

    figure: Figure
    value: float | None
    row: Row | None
    """None: no sweep that ran has it."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """A published figure, or the place of one, and the figures beside it."""

    cell: Cell
    figures: tuple[Measured, ...]
    """One for each column of the series."""

    ratio: float | None
    """How many times as fast as published."""

    published_percent_of_peak: float | None


@dataclass(frozen=True, kw_only=True)
class Compared:
    """A series with its lines, and whether its shape holds."""

    series: Series
    lines: tuple[Line, ...]
    judgements: tuple[Judgement, ...]

    @property
    def measured(self) -> dict[str, float]:
        """Label → figure of the first column."""
        return {
            line.cell.label: line.figures[0].value
            for line in self.lines
            if line.figures[0].value is not None
        }


def side_by_side(experiment: Experiment, rows: Sequence[Row]) -> list[Compared]:
    """Every series of an experiment beside its rows, judged."""
    lines = {
        series.name: tuple(_line(experiment, series, cell, rows) for cell in series.cells)
        for series in experiment.series
    }
    unjudged = {
        series.name: Compared(series=series, lines=lines[series.name], judgements=())
        for series in experiment.series
    }
    published = {series.name: series.published for series in experiment.series}
    return [
        Compared(
            series=series,
            lines=lines[series.name],
            judgements=tuple(
                judge(
                    rule,
                    series.figure,
                    series.published,
                    unjudged[series.name].measured,
                    (published[rule.than], unjudged[rule.than].measured) if rule.than else ({}, {}),
                )
                for rule in series.rules
            ),
        )
        for series in experiment.series
    ]


def _line(experiment: Experiment, series: Series, cell: Cell, rows: Sequence[Row]) -> Line:
    figures = tuple(_measured(series, cell, column, rows) for column in series.columns)
    ours = figures[0].value
    ratio = None
    if ours is not None and cell.published is not None:
        ratio = series.figure.times_as_fast(ours, cell.published)
    return Line(
        cell=cell,
        figures=figures,
        ratio=ratio,
        published_percent_of_peak=_published_percent(experiment, series, cell),
    )


def _measured(series: Series, cell: Cell, column: Column, rows: Sequence[Row]) -> Measured:
    row = _pick(series.selection(cell, column), rows)
    baseline = series.baseline(cell, column)
    over = _pick(baseline, rows) if baseline is not None else None
    return Measured(figure=column.figure, value=_value(column.figure, row, over), row=row)


def _pick(wanted: Selection, rows: Sequence[Row]) -> Row | None:
    """The row that is meant: the fastest if any tile will do."""
    found = [one for one in rows if matches(wanted, _identity(one))]
    if wanted.get("tile") == BEST:
        found.sort(key=lambda one: (one.status != Status.OK, one.median_us or 0.0))
    return found[0] if found else None


def _identity(one: Row) -> Selection:
    return {key: str(getattr(one, key)) for key in SELECTABLE}


def _value(figure: Figure, row: Row | None, over: Row | None) -> float | None:
    if row is None or row.median_us is None:
        return None
    if figure == Figure.MS:
        return row.median_us / 1e3
    if figure == Figure.SPEEDUP:
        return over.median_us / row.median_us if over and over.median_us else None
    return row.gflops if figure == Figure.GFLOPS else row.gbytes_per_s


def _published_percent(experiment: Experiment, series: Series, cell: Cell) -> float | None:
    """Percent of the published device's published peak, for a rate in a dtype that is certain."""
    device = experiment.device(cell.device)
    dtypes = {dtype for one in experiment.sweeps for dtype in one.sweep.dtypes}
    named = series.selection(cell, series.columns[0]).get("dtype")
    dtype = named or (dtypes.pop() if len(dtypes) == 1 else "")
    if device is None or series.figure != Figure.GFLOPS:
        return None
    peak_tflops = device.facts.get(f"peak_{dtype}_tflops")
    return percent(
        cell.published, 1e3 * peak_tflops if isinstance(peak_tflops, int | float) else None
    )
