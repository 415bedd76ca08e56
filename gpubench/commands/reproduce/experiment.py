"""Experiments: what to sweep, and the figures that were published. docs/reproduce.md has the form.

Each is a TOML file in `configs/` that has sweeps, or a user's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args

import msgspec
from msgspec import Meta

from gpubench.commands.reproduce.rules import (
    AnyRule,
    FallsUntil,
    Figure,
    Figures,
    Label,
    Labels,
    RisesFrom,
    texts,
)
from gpubench.errors import UsageError
from gpubench.model import Point
from gpubench.options import confined, read_sweep
from gpubench.plan.sweep import Sweep, plan
from gpubench.plan.toml_file import NOT_BLANK, decode, read_toml
from gpubench.results.row import NAMES
from gpubench.text import unknown

_BESIDE_PACKAGE = Path(__file__).parents[3] / "configs"
_IN_PACKAGE = Path(__file__).parents[2] / "configs"

_MAX_DIGITS = 20  # of labels that are sorted as numbers; Python refuses to convert thousands

BEST = "best"  # as `tile`: the fastest one

_Selectable = Literal[
    "op", "variant", "backend", "tile", "dtype", "compute_mode", "size", "cache", "scope", "timer"
]
SELECTABLE: tuple[str, ...] = get_args(_Selectable)

Selection = Mapping[str, str]
"""What identifies measured points: a key of the CSV, or `size`, and its value as text."""

DEFAULTS: Selection = {"cache": "cold", "scope": "kernel"}
"""Of what a selection does not name."""

DEVICE_FACTS = {
    "compute_capability": "compute capability",
    "multiprocessors": "multiprocessors",
    "threads_per_block": "threads per block",
    "threads_per_multiprocessor": "threads per multiprocessor",
    "registers_per_block": "32-bit registers per block",
    "shared_memory_per_block_bytes": "shared memory per block, bytes",
    "constant_memory_bytes": "constant memory, bytes",
    "global_memory_mib": "global memory, MiB",
    "l2_bytes": "L2 cache, bytes",
    "peak_float16_tflops": "peak float16, TFLOP/s",
    "peak_float32_tflops": "peak float32, TFLOP/s",
    "peak_float64_tflops": "peak float64, TFLOP/s",
}
"""What may be published about a device, and its heading."""

_Text = Annotated[str, Meta(pattern=NOT_BLANK)]
_Positive = Annotated[int, Meta(gt=0)] | Annotated[float, Meta(gt=0, le=1e300)]
_Fact = int | Annotated[float, Meta(ge=-1e300, le=1e300)] | str
_Where = dict[_Selectable, Label]


class Cell(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[[series.cell]]`: one published figure, or a place for one that is measured only."""

    label: _Text
    where: _Where = {}
    published: _Positive | None = None
    device: str = ""  # name of a `[[device]]`; empty: the series'
    facts: dict[str, _Fact] = {}  # what else was published about it, by heading


class Column(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[[series.beside]]`: a column of measured figures."""

    name: _Text
    figure: Figure | None = None  # None: the series'
    where: _Where = {}  # what it changes in the series' selection
    over: _Where = {}  # for a speed-up: what it changes again to select the baseline


class Series(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[[series]]`: figures published along an axis, and what is measured for comparison."""

    name: _Text
    figure: Figure
    axis: _Text  # heading of the labels; where `published` or `also` has some, a selection's key
    device: str = ""  # name of the `[[device]]` of its figures, where a cell names none
    where: _Where = {}
    over: _Where = {}
    published_at: dict[str, _Positive] = msgspec.field(name="published", default={})
    also: Labels = ()
    beside: tuple[Column, ...] = ()
    cell: tuple[Cell, ...] = ()
    explain: tuple[str, ...] = ()  # columns of the CSV that say why, of the first column's points
    rules: tuple[AnyRule, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what no type can: msgspec adds the place."""
        for column in self.columns:
            if bool(column.over) != (self.figure_of(column) == Figure.SPEEDUP):
                raise ValueError("'over' is the baseline of a speedup: needed there, not elsewhere")
        labels = [cell.label for cell in self.cells]
        if not labels:
            raise ValueError("names no figure: 'published', 'also' or [[series.cell]] must")
        if len(set(labels)) < len(labels):
            raise ValueError("two figures have one label")
        if len(labels) > len(self.cell) and self.axis not in SELECTABLE:
            raise ValueError(f"axis: {unknown('key', self.axis, SELECTABLE)}")
        for name in self.explain:
            if name not in NAMES:
                raise ValueError(f"explain: {unknown('column', name, NAMES)}")

    @property
    def columns(self) -> tuple[Column, ...]:
        """The first is compared with the published figures."""
        return (Column(name="measured", over=self.over), *self.beside)

    @property
    def cells(self) -> tuple[Cell, ...]:
        """A cell for each label on the axis, then the others."""
        labels = list(dict.fromkeys((*self.published_at, *texts(self.also))))
        if all(label.isdecimal() and len(label) < _MAX_DIGITS for label in labels):
            labels.sort(key=int)  # tiles and sizes, whether published or not
        along = [
            Cell(label=label, where={self.axis: label}, published=self.published_at.get(label))  # type: ignore[dict-item] # __post_init__ checks the axis
            for label in labels
        ]
        return (*along, *self.cell)

    @property
    def published(self) -> dict[str, float]:
        """Label → published figure, where there is one."""
        return {cell.label: cell.published for cell in self.cells if cell.published is not None}

    def figure_of(self, column: Column) -> Figure:
        """What a column's figures are."""
        return column.figure or self.figure

    def device_of(self, cell: Cell) -> str:
        """Name of the device that a cell's figure was published for; empty if there is none."""
        return (cell.device or self.device) if cell.published is not None else cell.device

    def selection(self, cell: Cell, column: Column) -> Selection:
        """What identifies the measured point of a cell and column."""
        wanted = {**self.where, **cell.where, **column.where}
        return {**DEFAULTS, **{str(key): str(value) for key, value in wanted.items()}}

    def baseline(self, cell: Cell, column: Column) -> Selection | None:
        """The point that a speed-up is over, or None."""
        over = {str(key): str(value) for key, value in column.over.items()}
        return {**self.selection(cell, column), **over} if over else None


class FactTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[[facts]]`: published facts that nothing is measured for."""

    title: _Text
    columns: tuple[str, ...]
    rows: tuple[tuple[_Fact, ...], ...] = ()

    def __post_init__(self) -> None:
        """Refuse rows of another length: msgspec adds the place."""
        if any(len(row) != len(self.columns) for row in self.rows):
            raise ValueError(f"rows must be lists of {len(self.columns)} texts or numbers")


class ExperimentFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An experiment as its file has it."""

    title: _Text
    source: _Text
    about: str = ""
    notes: tuple[str, ...] = ()
    device: tuple[dict[str, _Fact], ...] = ()
    sweep: tuple[dict[str, Any], ...] = ()
    series: tuple[Series, ...] = ()
    facts: tuple[FactTable, ...] = ()


class SweepConditions(msgspec.Struct, frozen=True, kw_only=True):
    """What `[[sweep]]` has beside the options of `gpubench sweep`; they are left unread."""

    device: Literal["cuda", "cpu"]
    when: Literal["always", "with-gpu", "without-gpu"] = "always"
    """On the CPU: only for comparison with a GPU's figures, or only in place of a GPU's."""

    remember: bool = False  # measured once on a machine, in one round; kept in the user's cache

    def __post_init__(self) -> None:
        """Refuse what is for the CPU alone."""
        if self.device == "cuda" and (self.when != "always" or self.remember):
            raise ValueError("'when' and 'remember' are for sweeps on the CPU")


class ExperimentSweep(NamedTuple):
    """One sweep of an experiment; its device is `cuda` or `cpu`."""

    sweep: Sweep
    conditions: SweepConditions


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A published experiment."""

    path: Path
    file: ExperimentFile
    devices: Mapping[str, Mapping[str, _Fact]]  # that figures were published for: name → facts
    sweeps: tuple[ExperimentSweep, ...]

    @property
    def name(self) -> str:
        """Its file's stem."""
        return self.path.stem

    @property
    def series(self) -> tuple[Series, ...]:
        """What was published and is measured."""
        return self.file.series

    def sweeps_for(self, *, gpu: bool) -> list[ExperimentSweep]:
        """The sweeps to run on a machine with a GPU, or without."""
        left_out = "without-gpu" if gpu else "with-gpu"
        return [
            planned
            for planned in self.sweeps
            if planned.conditions.when != left_out and (gpu or planned.sweep.device != "cuda")
        ]

    def points(self) -> list[Point]:
        """Every point that any of its sweeps plans. Raises UsageError if a sweep cannot run."""
        points: list[Point] = []
        for number, (sweep, _) in enumerate(self.sweeps, 1):
            try:
                points += plan(sweep, sweep.device)
            except UsageError as error:
                raise UsageError(f"{self.path}: sweep {number}: {error}") from error
        return points


def matches(wanted: Selection, found: Selection) -> bool:
    """Whether a point is one of those that a selection means."""
    return all(
        found[key] == value for key, value in wanted.items() if (key, value) != ("tile", BEST)
    )


def shipped() -> dict[str, Path]:
    """The experiments that come with gpubench: name → file."""
    folder = _IN_PACKAGE if _IN_PACKAGE.is_dir() else _BESIDE_PACKAGE
    return {path.stem: path for path in sorted(folder.glob("*.toml")) if "sweep" in read_toml(path)}


def find(names: Sequence[str]) -> list[Experiment]:
    """The experiments named, or all that come with gpubench; a name that ends in .toml is a file.

    Raises UsageError for a name that is unknown, and for a file that does not fit.
    """
    known = shipped()
    by_name: dict[str, Path] = {}
    for name in names or known:
        if name not in known and not name.endswith(".toml"):
            hint = unknown("experiment", name, known)
            raise UsageError(f"{hint}; your own is a file that ends in .toml")
        path = known.get(name, Path(name))
        if by_name.setdefault(path.stem, path) != path:
            raise UsageError(f"{path} and {by_name[path.stem]} have one name; rename one")
    return [read_experiment(path) for path in by_name.values()]


def read_experiment(path: Path) -> Experiment:
    """An experiment's file. Raises UsageError saying where it does not fit."""
    file = decode(read_toml(path), ExperimentFile, str(path))
    if not file.sweep:
        raise UsageError(f"{path}: has no [[sweep]], so there is nothing to measure")
    devices = [_device(facts, f"{path}: device {n}") for n, facts in enumerate(file.device, 1)]
    sweeps = [_sweep(given, path, f"{path}: sweep {n}") for n, given in enumerate(file.sweep, 1)]
    experiment = Experiment(path=path, file=file, devices=dict(devices), sweeps=tuple(sweeps))
    _require_claims(experiment)
    _require_points(experiment)
    return experiment


def _device(facts: dict[str, _Fact], where: str) -> tuple[str, dict[str, _Fact]]:
    for key in facts:
        if key not in {"name", *DEVICE_FACTS}:
            raise UsageError(f"{where}: {unknown('key', key, ('name', *DEVICE_FACTS))}")
    name = str(facts.get("name", "")).strip()
    if not name:
        raise UsageError(f"{where}: 'name' is missing")
    return name, {key: fact for key, fact in facts.items() if key != "name"}


def _sweep(options: dict[str, Any], path: Path, where: str) -> ExperimentSweep:
    conditions = decode(options, SweepConditions, where)
    if "output" in options:
        raise UsageError(f"{where}: 'output' is given on the command line")
    own = {name: value for name, value in options.items() if name not in {"when", "remember"}}
    try:
        return ExperimentSweep(read_sweep(confined(path, own)), conditions)
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from error


def _require_claims(experiment: Experiment) -> None:
    """Every device must be there, and every rule be one that the published figures keep."""
    published = {series.name: series.published for series in experiment.series}
    if len(published) < len(experiment.series):
        raise UsageError(f"{experiment.path}: two series have one name")
    for series in experiment.series:
        where = f"{experiment.path}: series '{series.name}'"
        for device in filter(None, map(series.device_of, series.cells)):
            if device not in experiment.devices:
                raise UsageError(f"{where}: {unknown('device', device, experiment.devices)}")
        for rule in series.rules:
            if why := _why_no_claim(rule, series, published):
                raise UsageError(f"{where}: rule '{rule.statement}': {why}")


def _why_no_claim(rule: AnyRule, series: Series, published: Mapping[str, Figures]) -> str | None:
    figures = series.published
    for label in rule.labels:
        if label not in figures:
            return unknown("label", label, figures)
    if not figures:
        return "there are no published figures"
    if isinstance(rule, FallsUntil | RisesFrom) and str(rule.at) == next(iter(figures)):
        return "there is no step before the first label"
    if rule.slower and rule.slower not in published:
        return unknown("series", rule.slower, published)
    judged = rule.judged(series.figure, figures, published.get(rule.slower, {}))
    if not judged:
        return "the two series have no label in common"
    holds, seen = rule.observe(judged)
    return None if holds else f"the published figures do not keep it: {seen}"


def _require_points(experiment: Experiment) -> None:
    """Raise UsageError unless every figure is that of one point of the sweeps."""
    points = list(map(_identity, experiment.points()))
    for series in experiment.series:
        for cell, column in product(series.cells, series.columns):
            for wanted in (series.selection(cell, column), series.baseline(cell, column)):
                if wanted is not None and (why := _why_not_one(wanted, points)):
                    where = f"{experiment.path}: series '{series.name}' at {cell.label}"
                    raise UsageError(f"{where}: {why}")


def _why_not_one(wanted: Selection, points: Sequence[Selection]) -> str | None:
    found = {tuple(point.items()) for point in points if matches(wanted, point)}
    if len(found) == 1 or (found and wanted.get("tile") == BEST):
        return None
    what = ", ".join(f"{key} {value!r}" for key, value in wanted.items())
    if not found:
        return f"no sweep measures {what}"
    differ = [key for key in SELECTABLE if len({dict(point)[key] for point in found}) > 1]
    return f"{len(found)} points have {what}; they differ in {', '.join(differ)}"


def _identity(point: Point) -> Selection:
    problem, variant = point.problem, point.variant
    values = (
        *(problem.op, variant.name, variant.backend, point.tile or "", problem.dtype),
        *(problem.dtype, problem.size, point.cache, point.scope, point.timer),
    )
    return dict(zip(SELECTABLE, map(str, values), strict=True))
