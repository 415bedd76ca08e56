"""Reads the files of experiments, which have sweeps and published figures.

docs/reproduce.md describes the format of the files.

Each experiment is a TOML file, which is in `configs/` or is a user's own file.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from gpubench.commands.reproduce.checkout import Checkout, descriptions
from gpubench.commands.reproduce.rules import Figure, Label, Labels, Rule, texts
from gpubench.errors import UsageError
from gpubench.model import PointKey, size_of, size_text
from gpubench.options import read_sweep
from gpubench.plan.sweep import Sweep, plan
from gpubench.plan.toml_file import confined, decode, read_toml
from gpubench.results.row import NAMES
from gpubench.rewording import NOT_BLANK
from gpubench.text import unknown
from gpubench.view.numbers import tile_order

_BESIDE_PACKAGE = Path(__file__).parents[3] / "configs"
_IN_PACKAGE = Path(__file__).parents[2] / "configs"

BEST = ("tile", "best")  # selects the fastest tile
SELECTABLE = (*PointKey._fields, "size")
"""Keys of `where`: the key columns of the CSV, and the size as `--sizes` takes it."""

Selection = Mapping[str, str]  # identifies measured points: keys of `SELECTABLE` with their values
_Text = Annotated[str, Meta(pattern=NOT_BLANK)]
_Positive = Annotated[int, Meta(gt=0)] | Annotated[float, Meta(gt=0, le=1e300)]
_Fact = int | Annotated[float, Meta(ge=-1e300, le=1e300)] | str
_Where = dict[str, Label]


class Cell(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[[series.cell]]`: a label, and possibly a figure that was published for this label."""

    label: _Text
    where: _Where = {}
    published: _Positive | None = None
    device: str = ""  # name of a `[[device]]`; empty for the series' device
    facts: dict[str, _Fact] = {}  # other published facts for this label, by heading


class Column(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[[series.beside]]`: a column of measured figures."""

    name: _Text
    figure: Figure | None = None  # None for the figure of the series
    where: _Where = {}  # keys that replace the series' keys
    over: _Where = {}  # further keys, which select the baseline of a speedup


class Series(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[[series]]`: published figures for the labels of an axis, and the points to compare."""

    name: _Text
    figure: Figure
    axis: _Text  # heading of the labels; labels of `published` and `also` are values of this key
    device: str = ""  # name of the `[[device]]` of the published figures
    where: _Where = {}
    over: _Where = {}
    published_at: dict[str, _Positive] = msgspec.field(name="published", default={})
    also: Labels = ()
    beside: tuple[Column, ...] = ()
    cell: tuple[Cell, ...] = ()
    explain: tuple[str, ...] = ()  # columns of the CSV that explain the first column's figures
    rules: tuple[Rule, ...] = ()

    def __post_init__(self) -> None:
        """Refuse wrong combinations of keys. msgspec adds the place in the file to the message."""
        for column in self.columns:
            if bool(column.over) != ((column.figure or self.figure) == Figure.SPEEDUP):
                raise ValueError(
                    "'over' names the baseline of a speedup: every speedup needs it, and no other "
                    "figure takes it"
                )
        labels = [cell.label for cell in self.cells]
        if not labels:
            raise ValueError("has no figure: add 'published', 'also' or [[series.cell]]")
        if len(set(labels)) < len(labels):
            raise ValueError("two figures have the same label")
        for name in self.explain:
            if name not in NAMES:
                raise ValueError(f"explain: {unknown('column', name, NAMES)}")

    @property
    def columns(self) -> tuple[Column, ...]:
        """The measured columns. The first column is compared with the published figures."""
        return (Column(name="measured", over=self.over), *self.beside)

    @property
    def cells(self) -> tuple[Cell, ...]:
        """A cell for each label on the axis, then the cells of `[[series.cell]]`."""
        labels = list(dict.fromkeys((*self.published_at, *texts(self.also))))
        if all(map(str.isdecimal, labels)):
            labels.sort(key=tile_order)
        along = [
            Cell(label=label, where={self.axis: label}, published=self.published_at.get(label))
            for label in labels
        ]
        return tuple(
            replace(cell, device=cell.device or (self.device if cell.published else ""))
            for cell in (*along, *self.cell)
        )

    @property
    def published(self) -> dict[str, float]:
        """Maps each label that has a published figure to this figure."""
        return {cell.label: cell.published for cell in self.cells if cell.published is not None}

    def selections(self, cell: Cell, column: Column) -> list[Selection]:
        """Return the selection of a cell and column, and the selection of a speedup's baseline."""
        usual = {"cache": "cold", "launches": "alone", "state": "burst", "scope": "kernel"}
        values = {**usual, **self.where, **cell.where, **column.where}
        measured = [values, {**values, **column.over}][: 2 if column.over else 1]
        return [{key: str(value) for key, value in each.items()} for each in measured]


class FactTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[[facts]]`: published facts for which nothing is measured."""

    title: _Text
    columns: tuple[str, ...]
    rows: Annotated[tuple[tuple[_Fact, ...], ...], Meta(min_length=1)]

    def __post_init__(self) -> None:
        """Refuse rows whose length differs. msgspec adds the place in the file to the message."""
        if any(len(row) != len(self.columns) for row in self.rows):
            raise ValueError(f"rows must be lists of {len(self.columns)} texts or numbers")


class ExperimentFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The keys and tables of an experiment's TOML file."""

    title: _Text
    source: _Text
    about: str = ""
    notes: tuple[str, ...] = ()
    checkout: Checkout | None = None
    device: tuple[dict[str, _Fact], ...] = ()
    sweep: Annotated[tuple[dict[str, Any], ...], Meta(min_length=1)]
    series: tuple[Series, ...] = ()
    facts: tuple[FactTable, ...] = ()

    def __post_init__(self) -> None:
        """Refuse devices without a name, and two series with the same name."""
        for number, facts in enumerate(self.device, 1):
            if not str(facts.get("name", "")).strip():
                raise ValueError(f"device {number}: 'name' is missing")
        if len({series.name for series in self.series}) < len(self.series):
            raise ValueError("two series have the same name")

    @property
    def devices(self) -> dict[str, dict[str, _Fact]]:
        """Maps the name of each device that has published figures to the facts about the device."""
        return {str(facts["name"]): facts for facts in self.device}


class Conditions(msgspec.Struct, frozen=True, kw_only=True):
    """The keys of `[[sweep]]` that are not options of `gpubench sweep`, and the sweep's device."""

    device: Literal["cuda", "cpu"]
    when: Literal["always", "with-gpu", "without-gpu"] = "always"  # when a sweep for the CPU is run
    remember: bool = False
    """Whether a sweep is measured only once on a machine. The user's cache then keeps the rows."""

    def __post_init__(self) -> None:
        """Refuse CPU-only keys in a GPU sweep. msgspec adds the place in the file to the text."""
        if self.device == "cuda" and (self.when != "always" or self.remember):
            raise ValueError("'when' and 'remember' are only for sweeps on the CPU")


class PlannedSweep(NamedTuple):
    """A sweep of an experiment, with the conditions under which it is run."""

    sweep: Sweep
    conditions: Conditions
    points: int  # number of the sweep's points

    @property
    def words(self) -> str:
        """The variants, the operation and the types, such as `naive, cublas (gemm, float32)`."""
        variants = ", ".join(self.sweep.variants) or "all variants"
        return f"{variants} ({self.sweep.op}, {', '.join(self.sweep.dtypes)})"


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A published experiment, as the experiment's file describes it."""

    path: Path
    file: ExperimentFile
    sweeps: tuple[PlannedSweep, ...]  # their devices are `cuda` and `cpu`

    @property
    def name(self) -> str:
        """The name of the experiment, which is the file's name without `.toml`."""
        return self.path.stem

    def sweeps_for(self, *, gpu: bool) -> list[PlannedSweep]:
        """Return the sweeps to run on a machine with or without a GPU."""
        left_out = "without-gpu" if gpu else "with-gpu"
        return [
            each
            for each in self.sweeps
            if each.conditions.when != left_out and (gpu or each.sweep.device != "cuda")
        ]


def identity(key: PointKey) -> Selection:
    """Return the fields of a point that a selection can name, with their values."""
    size = size_text(key.op, size_of(key))
    return {name: str(value) for name, value in (*key._asdict().items(), ("size", size))}


def matches(selection: Selection, point: Selection) -> bool:
    """Return whether a point has all values of a selection."""
    return all(item == BEST or point.get(item[0]) == item[1] for item in selection.items())


def shipped(kind: str = "") -> dict[str, Path]:
    """Map the name of each experiment that comes with gpubench to the experiment's file.

    The kind `claims` has the experiments that need a checkout of another project.
    """
    folder = (_IN_PACKAGE if _IN_PACKAGE.is_dir() else _BESIDE_PACKAGE) / kind
    return {path.stem: path for path in sorted(folder.glob("*.toml")) if "sweep" in read_toml(path)}


def paths_of(names: Sequence[str]) -> dict[str, Path]:
    """Map the stem of each named experiment to the file. A name that ends in .toml is a file.

    Raises UsageError for an unknown name, and for two files with the same stem.
    """
    paths_by_name = shipped() | shipped("claims")
    paths: dict[str, Path] = {}
    for name in names:
        if name not in paths_by_name and not name.endswith(".toml"):
            hint = unknown("experiment", name, paths_by_name)
            raise UsageError(f"{hint}; an experiment of your own is a file that ends in .toml")
        path = paths_by_name.get(name, Path(name))
        if paths.setdefault(path.stem, path) != path:
            raise UsageError(f"{path} and {paths[path.stem]} have the same name; rename one")
    return paths


def find(
    names: Sequence[str], checkout: Path | None = None, *, runs: bool = True
) -> list[Experiment]:
    """Read the named experiments, or the shipped experiments that need no checkout.

    `checkout` is the folder with the code of the experiments that have a `[checkout]`. If `runs` is
    false, `checkout` may be missing. Raises UsageError for an unknown name and for an invalid file.
    """
    paths = paths_of(names or [*shipped()]).values()
    experiments = [read_experiment(path, checkout, runs=runs) for path in paths]
    if checkout and not any(experiment.file.checkout for experiment in experiments):
        raise UsageError("--checkout: none of these experiments checks code of a checkout")
    return experiments


def read_file(path: Path) -> ExperimentFile:
    """Read an experiment's file, but not the options of its sweeps.

    Raises UsageError for an invalid file.
    """
    return decode(read_toml(path), ExperimentFile, str(path))


def read_experiment(path: Path, checkout: Path | None = None, *, runs: bool = True) -> Experiment:
    """Read an experiment's file. Raises UsageError, which names the place, for an invalid file."""
    file, kernels = read_file(path), {}
    if file.checkout:
        has_code = runs or checkout is not None
        folder = file.checkout.kernels(path, checkout) if has_code else descriptions(path)
        kernels = {"kernels": str(folder)}
    sweeps, points = [], []
    for number, table in enumerate(file.sweep, 1):
        conditions = decode(table, Conditions, f"{path}: sweep {number}")
        own = {name: value for name, value in table.items() if name not in {"when", "remember"}}
        if refused := {"output", "samples"} & own.keys():
            raise UsageError(
                f"{path}: sweep {number}: '{min(refused)}' is only for the command line"
            )
        try:
            sweep = read_sweep({**confined(path, own), **kernels})
            planned = plan(sweep, sweep.device, multiprocessors=1)  # any number will do
        except UsageError as error:
            raise UsageError(f"{path}: sweep {number}: {error}") from error
        points += [identity(point.key) for point in planned]
        sweeps.append(PlannedSweep(sweep, conditions, len(planned)))
    for series in file.series:
        try:
            _require_kept(series, file)
            _require_points(series, points)
        except ValueError as why:
            raise UsageError(f"{path}: series '{series.name}': {why}") from why
    return Experiment(path=path, file=file, sweeps=tuple(sweeps))


def _require_kept(series: Series, file: ExperimentFile) -> None:
    """Raise ValueError for an unknown device, and for a rule that the published figures break."""
    for cell in series.cells:
        if cell.device and cell.device not in file.devices:
            raise ValueError(unknown("device", cell.device, file.devices))
    published = {other.name: other.published for other in file.series}
    for rule in series.rules:
        if rule.than and rule.than not in published:
            raise ValueError(f"rule '{rule.statement}': {unknown('series', rule.than, published)}")
        holds, words = rule.observe(rule.concerned(series.figure, series.published, published))
        if not holds:
            text = f"the published figures break this rule: {words}"
            raise ValueError(f"rule '{rule.statement}': {text}")


def _require_points(series: Series, points: Sequence[Selection]) -> None:
    """Raise ValueError for a figure that does not belong to exactly one point of the sweeps."""
    for cell, column in product(series.cells, series.columns):
        for selection in series.selections(cell, column):
            chosen = {tuple(point.items()) for point in points if matches(selection, point)}
            if len(chosen) == 1 or (chosen and BEST in selection.items()):
                continue
            where = ", ".join(f"{key} {value!r}" for key, value in selection.items())
            count = f"{len(chosen)} points have" if chosen else "no sweep measures"
            if unknown_keys := selection.keys() - set(SELECTABLE):
                count, where = unknown("key", min(unknown_keys), SELECTABLE), ""
            raise ValueError(f"at {cell.label}: {count} {where}".rstrip())
