"""Experiments: what to sweep, and the figures that were published for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from gpubench.commands.reproduce.published import Figure, Rule
from gpubench.errors import UsageError
from gpubench.hardware.peaks import peak_gflops
from gpubench.model import Device, Point
from gpubench.plan.sweep import Sweep, plan

Selection = Mapping[str, str]
"""What identifies measured points: a key of the CSV, or `size`, and its value as text."""

SELECTABLE = (
    *("op", "variant", "backend", "tile", "dtype", "compute_mode", "size"),
    *("cache", "scope", "timer"),
)

BEST = "best"
"""As `tile`: whichever was the fastest."""

DEFAULTS: Selection = {"cache": "cold", "scope": "kernel"}
"""What a selection means where it does not say."""

DEVICE_FACTS: dict[str, tuple[str, Callable[[Device], Any]]] = {
    "compute_capability": (
        "compute capability",
        lambda device: ".".join(map(str, device.compute_capability or ())),
    ),
    "multiprocessors": ("multiprocessors", lambda device: device.multiprocessors),
    "threads_per_block": ("threads per block", lambda d: d.facts.get("threads_per_block")),
    "threads_per_multiprocessor": (
        "threads per multiprocessor",
        lambda device: device.facts.get("threads_per_multiprocessor"),
    ),
    "registers_per_block": (
        "32-bit registers per block",
        lambda device: device.facts.get("registers_per_block"),
    ),
    "shared_memory_per_block_bytes": (
        "shared memory per block, bytes",
        lambda device: device.facts.get("shared_memory_per_block_bytes"),
    ),
    "constant_memory_bytes": (
        "constant memory, bytes",
        lambda device: device.facts.get("constant_memory_bytes"),
    ),
    "global_memory_mib": (
        "global memory, MiB",
        lambda device: device.facts.get("global_memory_bytes", 0) // 2**20 or None,
    ),
    "l2_bytes": ("L2 cache, bytes", lambda device: device.l2_bytes),
    "peak_float16_tflops": ("peak float16, TFLOP/s", lambda device: _peak(device, "float16")),
    "peak_float32_tflops": ("peak float32, TFLOP/s", lambda device: _peak(device, "float32")),
    "peak_float64_tflops": ("peak float64, TFLOP/s", lambda device: _peak(device, "float64")),
}
"""Facts of a device: heading, and where a device of today has it."""


def _peak(device: Device, dtype: str) -> float | None:
    gflops = peak_gflops(device, dtype)
    return gflops / 1e3 if gflops else None


class When(StrEnum):
    """On which machines a sweep runs."""

    ALWAYS = "always"
    WITH_GPU = "with-gpu"
    """On the CPU, but only to stand beside a GPU's figures."""

    WITHOUT_GPU = "without-gpu"
    """In place of a GPU's."""


@dataclass(frozen=True, kw_only=True)
class ExperimentSweep:
    """One sweep of an experiment."""

    sweep: Sweep
    """Its device is `cuda` or `cpu`."""

    when: When = When.ALWAYS
    remember: bool = False
    """Measured once on a machine, in a single round, and kept in the user's cache."""


@dataclass(frozen=True, kw_only=True)
class PublishedDevice:
    """A device that figures were published for."""

    name: str
    facts: Mapping[str, float | str]
    """By names in `DEVICE_FACTS`."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One published figure, or a place for one that is measured only."""

    label: str
    where: Selection
    published: float | None = None
    device: str = ""
    """Name of a `PublishedDevice`."""

    facts: Mapping[str, float | str]
    """What else was published about it, by heading."""


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column of measured figures."""

    name: str
    figure: Figure
    where: Selection
    """What it changes in the series' selection."""

    over: Selection | None = None
    """For a speed-up: what it changes again to reach the slower side."""


@dataclass(frozen=True, kw_only=True)
class Series:
    """Published figures along an axis, and what is measured to stand beside them."""

    name: str
    axis: str
    """The heading of the labels."""

    where: Selection
    columns: tuple[Column, ...]
    """The first is held against the published figures."""

    cells: tuple[Cell, ...]
    explain: tuple[str, ...]
    """Columns of the CSV that say why, of the first column's points."""

    rules: tuple[Rule, ...]

    @property
    def figure(self) -> Figure:
        """What was published."""
        return self.columns[0].figure

    @property
    def published(self) -> dict[str, float]:
        """Label → published figure, where there is one."""
        return {one.label: one.published for one in self.cells if one.published is not None}

    def selection(self, cell: Cell, column: Column) -> Selection:
        """What identifies the measured point of a cell and column."""
        return {**DEFAULTS, **self.where, **cell.where, **column.where}

    def baseline(self, cell: Cell, column: Column) -> Selection | None:
        """The point that a speed-up is over, or None."""
        if column.over is None:
            return None
        return {**self.selection(cell, column), **column.over}


@dataclass(frozen=True, kw_only=True)
class FactTable:
    """Published facts that nothing is measured beside."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[float | str, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A published experiment: a TOML file."""

    name: str
    """Its file's stem."""

    path: Path
    title: str
    source: str
    about: str
    notes: tuple[str, ...]
    devices: tuple[PublishedDevice, ...]
    facts: tuple[FactTable, ...]
    sweeps: tuple[ExperimentSweep, ...]
    series: tuple[Series, ...]

    def sweeps_for(self, *, gpu: bool) -> list[ExperimentSweep]:
        """The sweeps to run on a machine with a GPU, or without."""
        not_now = When.WITHOUT_GPU if gpu else When.WITH_GPU
        return [
            one
            for one in self.sweeps
            if one.when != not_now and (gpu or one.sweep.device != "cuda")
        ]

    def device(self, name: str) -> PublishedDevice | None:
        """The published device of that name."""
        return next((one for one in self.devices if one.name == name), None)


def points_of(experiment: Experiment) -> list[Point]:
    """Every point that any of its sweeps plans. Raises UsageError if a sweep cannot run."""
    points: list[Point] = []
    for number, one in enumerate(experiment.sweeps, 1):
        try:
            points += plan(one.sweep, one.sweep.device)
        except UsageError as error:
            raise UsageError(f"{experiment.path}: sweep {number}: {error}") from error
    return points


def check(experiment: Experiment) -> None:
    """Raise UsageError unless every figure is that of one point of the sweeps."""
    points = [_identity(point) for point in points_of(experiment)]
    for series in experiment.series:
        for cell in series.cells:
            for column in series.columns:
                for wanted in (series.selection(cell, column), series.baseline(cell, column)):
                    if wanted is not None:
                        _require_one(experiment, series, cell, wanted, points)


def _require_one(
    experiment: Experiment,
    series: Series,
    cell: Cell,
    wanted: Selection,
    points: Sequence[Selection],
) -> None:
    found = {tuple(point.items()) for point in points if matches(wanted, point)}
    if len(found) == 1 or (found and wanted.get("tile") == BEST):
        return
    what = ", ".join(f"{key} {value!r}" for key, value in wanted.items())
    where = f"{experiment.path}: series '{series.name}' at {cell.label}"
    if not found:
        raise UsageError(f"{where}: no sweep measures {what}")
    differ = [key for key in SELECTABLE if len({dict(one)[key] for one in found}) > 1]
    raise UsageError(
        f"{where}: {len(found)} points have {what}; they differ in {', '.join(differ)}"
    )


def matches(wanted: Selection, found: Selection) -> bool:
    """Whether a point is one of those that a selection means."""
    return all(
        found[key] == value for key, value in wanted.items() if (key, value) != ("tile", BEST)
    )


def _identity(point: Point) -> Selection:
    problem, variant = point.problem, point.variant
    values: Iterable[object] = (
        *(problem.op, variant.name, variant.backend, point.tile or "", problem.dtype),
        *(variant.compute_mode(problem.dtype), problem.size),
        *(point.cache, point.scope, point.timer),
    )
    return dict(zip(SELECTABLE, map(str, values), strict=True))
