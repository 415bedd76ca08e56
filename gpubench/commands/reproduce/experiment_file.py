"""Reads experiments: the TOML files in `configs/` that have sweeps, and a user's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from gpubench.commands.reproduce.experiments import (
    DEVICE_FACTS,
    SELECTABLE,
    Cell,
    Column,
    Experiment,
    ExperimentSweep,
    FactTable,
    PublishedDevice,
    Selection,
    Series,
    When,
    check,
)
from gpubench.commands.reproduce.published import (
    TAKES_FACTOR,
    TAKES_LABELS,
    TAKES_ONE_LABEL,
    Figure,
    Kind,
    Rule,
    observe,
)
from gpubench.commands.reproduce.toml_table import TomlTable, is_fact, is_number
from gpubench.errors import UsageError
from gpubench.options import confined, read_sweep
from gpubench.plan.registry import unknown
from gpubench.plan.toml_file import read_toml
from gpubench.row import NAMES

LONGEST_NUMBER = 20
"""Digits; Python refuses to convert thousands."""

_BESIDE_PACKAGE = Path(__file__).parents[3] / "configs"
_IN_PACKAGE = Path(__file__).parents[2] / "configs"


def shipped() -> dict[str, Path]:
    """The experiments that come with gpubench: name → file."""
    folder = _IN_PACKAGE if _IN_PACKAGE.is_dir() else _BESIDE_PACKAGE
    return {path.stem: path for path in sorted(folder.glob("*.toml")) if "sweep" in read_toml(path)}


def find(names: Sequence[str]) -> list[Experiment]:
    """The experiments named, or all that come with gpubench; a name that ends in .toml is a file.

    Raises UsageError for a name that is unknown, and for a file that does not fit.
    """
    known = shipped()
    paths = []
    for name in names or known:
        if name in known:
            paths.append(known[name])
        elif name.endswith(".toml"):
            paths.append(Path(name))
        else:
            hint = unknown("experiment", name, known)
            raise UsageError(f"{hint}; your own is a file that ends in .toml")
    by_name: dict[str, Path] = {}
    for path in paths:
        if by_name.setdefault(path.stem, path) != path:
            raise UsageError(f"{path} and {by_name[path.stem]} have one name; rename one")
    return [read_experiment(path) for path in by_name.values()]


def read_experiment(path: Path) -> Experiment:
    """An experiment's file. Raises UsageError saying where it does not fit."""
    top = TomlTable(read_toml(path), str(path))
    devices = tuple(_device(one) for one in top.tables("device"))
    experiment = Experiment(
        name=path.stem,
        path=path,
        title=top.text("title"),
        source=top.text("source"),
        about=top.text("about", ""),
        notes=top.texts("notes"),
        devices=devices,
        facts=tuple(_facts(one) for one in top.tables("facts")),
        sweeps=tuple(_sweep(one, path) for one in top.tables("sweep")),
        series=tuple(_series(one, devices) for one in top.tables("series")),
    )
    top.done()
    if not experiment.sweeps:
        raise UsageError(f"{path}: has no [[sweep]], so there is nothing to measure")
    _check_rules(experiment)
    check(experiment)
    return experiment


def _device(one: TomlTable) -> PublishedDevice:
    name = one.text("name")
    facts = {key: value for key, value in one.values.items() if key != "name"}
    for key, value in facts.items():
        if key not in DEVICE_FACTS:
            raise UsageError(f"{one.where}: {unknown('key', key, DEVICE_FACTS)}")
        if not is_fact(value):
            raise one.refused(key, "must be a number or a text")
    return PublishedDevice(name=name, facts=facts)


def _facts(one: TomlTable) -> FactTable:
    title, columns, rows = one.text("title"), one.texts("columns"), one.take("rows", [])
    one.done()
    if not isinstance(rows, list) or not all(
        isinstance(row, list) and len(row) == len(columns) and all(map(is_fact, row))
        for row in rows
    ):
        raise one.refused("rows", f"must be lists of {len(columns)} texts or numbers")
    return FactTable(title=title, columns=columns, rows=tuple(map(tuple, rows)))


def _sweep(one: TomlTable, path: Path) -> ExperimentSweep:
    device = one.choice("device", ("cuda", "cpu"))
    when = When(one.choice("when", tuple(When), When.ALWAYS))
    remember = one.flag("remember")
    if device == "cuda" and (when != When.ALWAYS or remember):
        raise UsageError(f"{one.where}: 'when' and 'remember' are for sweeps on the CPU")
    options = {k: v for k, v in one.values.items() if k not in {"when", "remember"}}
    if "output" in options:
        raise UsageError(f"{one.where}: 'output' is given on the command line")
    try:
        sweep = read_sweep(confined(path, options))
    except UsageError as error:
        raise UsageError(f"{one.where}: {error}") from error
    return ExperimentSweep(sweep=sweep, when=when, remember=remember)


def _series(one: TomlTable, devices: Sequence[PublishedDevice]) -> Series:
    figure = Figure(one.choice("figure", tuple(Figure)))
    name, device = one.text("name"), one.text("device", "")
    series = Series(
        name=name,
        axis=one.text("axis"),
        where=one.selection("where"),
        columns=(
            _column(one, "measured", figure, {}),
            *(_beside(column, figure) for column in one.tables("beside")),
        ),
        cells=(*_along(one, device), *(_cell(cell, device) for cell in one.tables("cell"))),
        explain=one.texts("explain"),
        rules=tuple(_rule(rule) for rule in one.tables("rules")),
    )
    one.done()
    for column in series.explain:
        if column not in NAMES:
            raise UsageError(f"{one.where}: explain: {unknown('column', column, NAMES)}")
    known = [device.name for device in devices]
    for cell in series.cells:
        if cell.device and cell.device not in known:
            raise UsageError(f"{one.where}: {unknown('device', cell.device, known)}")
    labels = [cell.label for cell in series.cells]
    if not labels:
        raise one.refused("published", "or [[series.cell]] must name at least one figure")
    if len(set(labels)) < len(labels):
        raise UsageError(f"{one.where}: a label stands twice")
    return series


def _column(one: TomlTable, name: str, figure: Figure, where: Selection) -> Column:
    over = one.selection("over")
    if bool(over) != (figure == Figure.SPEEDUP):
        raise UsageError(f"{one.where}: 'over' says what a speedup is over, and only that")
    return Column(name=name, figure=figure, where=where, over=over or None)


def _beside(one: TomlTable, default: Figure) -> Column:
    figure = Figure(one.choice("figure", tuple(Figure), default))
    column = _column(one, one.text("name"), figure, one.selection("where"))
    one.done()
    return column


def _along(one: TomlTable, device: str) -> list[Cell]:
    """Cells of a series whose labels are the values of one key: `published = { 8 = 2.1 }`."""
    published = one.take("published", {})
    if not isinstance(published, dict) or not all(map(_is_positive, published.values())):
        raise one.refused("published", "must be a table of positive numbers: { 8 = 2.1, 16 = 1.8 }")
    labels = list(dict.fromkeys((*published, *one.labels("also"))))
    if all(label.isdecimal() and len(label) < LONGEST_NUMBER for label in labels):
        labels.sort(key=int)  # tiles and sizes: whatever is measured besides falls into its place
    axis = one.text("axis")
    if labels and axis not in SELECTABLE:
        raise UsageError(f"{one.where}: axis: {unknown('key', axis, SELECTABLE)}")
    return [
        Cell(
            label=label,
            where={axis: label},
            published=published.get(label),
            device=device if label in published else "",
            facts={},
        )
        for label in labels
    ]


def _cell(one: TomlTable, device: str) -> Cell:
    published = one.take("published")
    if published is not None and not _is_positive(published):
        raise one.refused("published", "must be a positive number")
    cell = Cell(
        label=one.text("label"),
        where=one.selection("where"),
        published=published,
        device=one.text("device", device),
        facts=one.facts("facts"),
    )
    one.done()
    return cell


def _is_positive(value: object) -> bool:
    return is_number(value) and value > 0  # type: ignore[operator] # it is a number


def _rule(one: TomlTable) -> Rule:
    kind = Kind(one.choice("rule", tuple(Kind)))
    at = one.labels("at") if kind in TAKES_LABELS else ()
    by = one.number("by", 1.0) if kind in TAKES_FACTOR else 1.0
    than = one.text("than") if kind == Kind.FASTER_THAN else ""
    one.done()
    if kind in TAKES_LABELS and not at:
        raise one.refused("at", "must name labels of the series")
    if kind in TAKES_ONE_LABEL and len(at) > 1:
        raise one.refused("at", "must name one label of the series")
    if by < 1:
        raise one.refused("by", "must be 1 or more")
    return Rule(kind=kind, at=at, by=by, than=than)


def _check_rules(experiment: Experiment) -> None:
    """Every rule must be one that the published figures keep: else it is no claim of theirs."""
    published = {series.name: series.published for series in experiment.series}
    if len(published) < len(experiment.series):
        raise UsageError(f"{experiment.path}: two series have one name")
    for series in experiment.series:
        where = f"{experiment.path}: series '{series.name}'"
        for rule in series.rules:
            why = _why_no_claim(rule, series, published)
            if why:
                raise UsageError(f"{where}: rule '{rule.statement}': {why}")


def _why_no_claim(
    rule: Rule, series: Series, published: Mapping[str, Mapping[str, float]]
) -> str | None:
    figures = series.published
    for label in rule.at:
        if label not in figures:
            return unknown("label", label, figures)
    if rule.kind in {Kind.FALLS_UNTIL, Kind.RISES_FROM} and rule.at[0] == next(iter(figures)):
        return "there is no step before the first label"
    if not figures:
        return "there are no published figures"
    if rule.than and rule.than not in published:
        return unknown("series", rule.than, published)
    if rule.than and not figures.keys() & published[rule.than].keys():
        return "the two series have no label in common"
    seen = observe(rule, series.figure, figures, published.get(rule.than, {}))
    return None if seen.holds else f"the published figures do not keep it: {seen.seen}"
