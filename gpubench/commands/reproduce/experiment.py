"""Experiments: what to sweep, and the figures that were published. docs/reproduce.md has the form.

Each is a TOML file in `configs/` that has sweeps, or a user's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta

from gpubench.commands.reproduce.rules import AnyRule, Figure, Label, Labels, texts
from gpubench.plan.registry import unknown
from gpubench.plan.sweep import Sweep
from gpubench.plan.toml_file import NOT_BLANK
from gpubench.row import NAMES

MAX_DIGITS = 20
"""Of labels that are sorted as numbers; Python refuses to convert thousands."""

BEST = "best"
"""As `tile`: the fastest one."""

Selectable = Literal[
    "op", "variant", "backend", "tile", "dtype", "compute_mode", "size", "cache", "scope", "timer"
]
SELECTABLE: tuple[str, ...] = get_args(Selectable)

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

Text = Annotated[str, Meta(pattern=NOT_BLANK)]
Positive = Annotated[int, Meta(gt=0)] | Annotated[float, Meta(gt=0, le=1e300)]
Fact = int | Annotated[float, Meta(ge=-1e300, le=1e300)] | str
Where = dict[Selectable, Label]


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table of an experiment's file."""


class Cell(Table, frozen=True, kw_only=True):
    """`[[series.cell]]`: one published figure, or a place for one that is measured only."""

    label: Text
    where: Where = {}
    published: Positive | None = None
    device: str = ""
    """Name of a `[[device]]`; empty: the series'."""

    facts: dict[str, Fact] = {}
    """What else was published about it, by heading."""


class Column(Table, frozen=True, kw_only=True):
    """`[[series.beside]]`: a column of measured figures."""

    name: Text
    figure: Figure | None = None
    """None: the series'."""

    where: Where = {}
    """What it changes in the series' selection."""

    over: Where = {}
    """For a speed-up: what it changes again to select the baseline."""


class Series(Table, frozen=True, kw_only=True):
    """`[[series]]`: figures published along an axis, and what is measured for comparison."""

    name: Text
    figure: Figure
    axis: Text
    """The heading of the labels; a key of a selection where `published` or `also` has labels."""

    device: str = ""
    """Name of the `[[device]]` that its figures were published for, where a cell names none."""

    where: Where = {}
    over: Where = {}
    published_at: dict[str, Positive] = msgspec.field(name="published", default={})
    also: Labels = ()
    beside: tuple[Column, ...] = ()
    cell: tuple[Cell, ...] = ()
    explain: tuple[str, ...] = ()
    """Columns of the CSV that say why, of the first column's points."""

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
        if all(label.isdecimal() and len(label) < MAX_DIGITS for label in labels):
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


class FactTable(Table, frozen=True, kw_only=True):
    """`[[facts]]`: published facts that nothing is measured for."""

    title: Text
    columns: tuple[str, ...]
    rows: tuple[tuple[Fact, ...], ...] = ()

    def __post_init__(self) -> None:
        """Refuse rows of another length: msgspec adds the place."""
        if any(len(row) != len(self.columns) for row in self.rows):
            raise ValueError(f"rows must be lists of {len(self.columns)} texts or numbers")


class ExperimentFile(Table, frozen=True, kw_only=True):
    """An experiment as its file has it."""

    title: Text
    source: Text
    about: str = ""
    notes: tuple[str, ...] = ()
    device: tuple[dict[str, Fact], ...] = ()
    sweep: tuple[dict[str, Any], ...] = ()
    series: tuple[Series, ...] = ()
    facts: tuple[FactTable, ...] = ()


class When(StrEnum):
    """On which machines a sweep runs."""

    ALWAYS = "always"
    WITH_GPU = "with-gpu"
    """On the CPU, but only for comparison with a GPU's figures."""

    WITHOUT_GPU = "without-gpu"
    """In place of a GPU's."""


class SweepConditions(msgspec.Struct, frozen=True, kw_only=True):
    """What `[[sweep]]` has beside the options of `gpubench sweep`; they are left unread."""

    device: Literal["cuda", "cpu"]
    when: When = When.ALWAYS
    remember: bool = False

    def __post_init__(self) -> None:
        """Refuse what is for the CPU alone."""
        if self.device == "cuda" and (self.when != When.ALWAYS or self.remember):
            raise ValueError("'when' and 'remember' are for sweeps on the CPU")


@dataclass(frozen=True, kw_only=True)
class ExperimentSweep:
    """One sweep of an experiment."""

    sweep: Sweep
    """Its device is `cuda` or `cpu`."""

    when: When
    remember: bool
    """Measured once on a machine, in a single round, and kept in the user's cache."""


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A published experiment."""

    path: Path
    file: ExperimentFile
    devices: Mapping[str, Mapping[str, Fact]]
    """That figures were published for: name → facts, by names in `DEVICE_FACTS`."""

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
        left_out = When.WITHOUT_GPU if gpu else When.WITH_GPU
        return [
            sweep
            for sweep in self.sweeps
            if sweep.when != left_out and (gpu or sweep.sweep.device != "cuda")
        ]


def matches(wanted: Selection, found: Selection) -> bool:
    """Whether a point is one of those that a selection means."""
    return all(
        found[key] == value for key, value in wanted.items() if (key, value) != ("tile", BEST)
    )
