"""Reads experiments: the TOML files in `configs/` that have sweeps, and a user's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gpubench.commands.reproduce.experiment import (
    BEST,
    DEVICE_FACTS,
    SELECTABLE,
    Experiment,
    ExperimentFile,
    ExperimentSweep,
    Fact,
    Selection,
    Series,
    SweepConditions,
    matches,
)
from gpubench.commands.reproduce.rules import AnyRule, FallsUntil, Figures, RisesFrom
from gpubench.errors import UsageError
from gpubench.model import Point
from gpubench.options import confined, read_sweep
from gpubench.plan.registry import unknown
from gpubench.plan.sweep import plan
from gpubench.plan.toml_file import decode, read_toml

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
    sweeps = [_sweep(options, path, number) for number, options in enumerate(file.sweep, 1)]
    experiment = Experiment(path=path, file=file, devices=dict(devices), sweeps=tuple(sweeps))
    _require_claims(experiment)
    _require_points(experiment)
    return experiment


def _device(facts: dict[str, Fact], where: str) -> tuple[str, dict[str, Fact]]:
    for key in facts:
        if key not in {"name", *DEVICE_FACTS}:
            raise UsageError(f"{where}: {unknown('key', key, ('name', *DEVICE_FACTS))}")
    name = str(facts.get("name", "")).strip()
    if not name:
        raise UsageError(f"{where}: 'name' is missing")
    return name, {key: fact for key, fact in facts.items() if key != "name"}


def _sweep(options: dict[str, Any], path: Path, number: int) -> ExperimentSweep:
    where = f"{path}: sweep {number}"
    conditions = decode(options, SweepConditions, where)
    if "output" in options:
        raise UsageError(f"{where}: 'output' is given on the command line")
    own = {name: value for name, value in options.items() if name not in {"when", "remember"}}
    try:
        sweep = read_sweep(confined(path, own))
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from error
    return ExperimentSweep(sweep=sweep, when=conditions.when, remember=conditions.remember)


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
    if rule.slower and not figures.keys() & published[rule.slower].keys():
        return "the two series have no label in common"
    seen = rule.observe(series.figure, figures, published.get(rule.slower, {}))
    return None if seen.holds else f"the published figures do not keep it: {seen.seen}"


def points_of(experiment: Experiment) -> list[Point]:
    """Every point that any of its sweeps plans. Raises UsageError if a sweep cannot run."""
    points: list[Point] = []
    for number, sweep in enumerate(experiment.sweeps, 1):
        try:
            points += plan(sweep.sweep, sweep.sweep.device)
        except UsageError as error:
            raise UsageError(f"{experiment.path}: sweep {number}: {error}") from error
    return points


def _require_points(experiment: Experiment) -> None:
    """Raise UsageError unless every figure is that of one point of the sweeps."""
    points = [_identity(point) for point in points_of(experiment)]
    for series in experiment.series:
        for cell in series.cells:
            for column in series.columns:
                for wanted in (series.selection(cell, column), series.baseline(cell, column)):
                    if wanted is not None and (why := _why_not_one(wanted, points)):
                        raise UsageError(
                            f"{experiment.path}: series '{series.name}' at {cell.label}: {why}"
                        )


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
        *(problem.dtype, problem.size),
        *(point.cache, point.scope, point.timer),
    )
    return dict(zip(SELECTABLE, map(str, values), strict=True))
