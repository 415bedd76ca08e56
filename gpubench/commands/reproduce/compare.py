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
from gpubench.results.row import Row


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A measured figure and where it comes from."""

    figure: Figure
    row: Row | None  # None: no sweep that ran has it
    over: Row | None = None  # a speed-up's baseline

    @property
    def value(self) -> float | None:
        """The figure of the medians."""
        return self._of("median_us", "median_us")

    @property
    def interval(self) -> tuple[float | None, float | None]:
        """The least and the largest figure that the intervals of the times allow."""
        of_longest = self._of("ci_high_us", "ci_low_us")
        of_shortest = self._of("ci_low_us", "ci_high_us")
        if self.figure == Figure.MS:
            return of_shortest, of_longest
        return of_longest, of_shortest

    @property
    def unstable(self) -> bool:
        """Whether the rounds of one of its times disagree: nothing may be concluded from it."""
        return any(row is not None and row.unstable for row in (self.row, self.over))

    @property
    def percent_of_peak(self) -> float | None:
        """The time's, unless its rounds disagree."""
        return self.row.percent_of_peak if self.row and not self.unstable else None

    def _of(self, column: str, over_column: str) -> float | None:
        """The figure of a column of times and, for a speed-up, one of the baseline.

        Rows of fewer than three rounds have no interval: their median counts.
        """
        time_us = getattr(self.row, column, None) or getattr(self.row, "median_us", None)
        over_us = getattr(self.over, over_column, None) or getattr(self.over, "median_us", None)
        if self.row is None or not time_us or not self.row.median_us:
            return None
        if self.figure == Figure.SPEEDUP:
            return over_us / time_us if over_us else None
        if self.figure == Figure.MS:
            return time_us / 1e3
        rate = self.row.gflops if self.figure == Figure.GFLOPS else self.row.gbytes_per_s
        return rate and rate * self.row.median_us / time_us


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
        unstable: dict[str, set[str]] = {"": set()}
        for series in self.experiment.series:
            found = tuple(_line(self.experiment, series, cell, self.rows) for cell in series.cells)
            first = {line.cell.label: line.figures[0] for line in found}
            lines[series.name], published[series.name] = found, series.published
            unstable[series.name] = {at for at, figure in first.items() if figure.unstable}
            measured[series.name] = {
                at: figure.value
                for at, figure in first.items()
                if figure.value is not None and not figure.unstable
            }

        def judged(series: Series, rule: Rule) -> Judgement:
            slower = (published[rule.slower], measured[rule.slower])
            return judge(
                *(rule, series.figure, published[series.name], measured[series.name], slower),
                unstable=unstable[series.name] | unstable[rule.slower],
            )

        return [
            Compared(
                series=series,
                lines=lines[series.name],
                judgements=tuple(judged(series, rule) for rule in series.rules),
            )
            for series in self.experiment.series
        ]


def _line(experiment: Experiment, series: Series, cell: Cell, rows: Sequence[Row]) -> Line:
    figures = tuple(
        Measured(
            figure=series.figure_of(column),
            row=_pick(series.selection(cell, column), rows),
            over=_pick(baseline, rows) if (baseline := series.baseline(cell, column)) else None,
        )
        for column in series.columns
    )
    ratio, ours = None, figures[0].value
    if cell.published is not None and ours is not None and not figures[0].unstable:
        ratio = series.figure.times_as_fast(ours, cell.published)
    return Line(
        cell=cell,
        figures=figures,
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
