"""Published figures are those that were checked, and each stands in exactly one experiment."""

from __future__ import annotations

import hashlib
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from gpubench.commands.reproduce.experiment import Experiment, Series, read_experiment, shipped
from gpubench.model import Fill, Point
from gpubench.plan.sweep import plan

NAMES = ("blog-2009", "double-tile", "lecture-sdk", "p100-tiles", "titan-atax")

CHECKED = {
    "blog-2009": "3a3818dad7ee2f7d",
    "double-tile": "1f5aaa24eb522fcf",
    "lecture-sdk": "c7ab5c1f09dc4dd1",
    "p100-tiles": "0a8871225e745969",
    "titan-atax": "b929fa812df60687",
}
"""Hash of what each experiment's file quotes: figures, devices, facts and source. The quotations
were typed twice and compared when they were written. A hash changes with any of them."""


def quoted(experiment: Experiment) -> str:
    """Hash of the quotations of an experiment."""
    figures = {
        series.name: [(cell.label, cell.published, cell.facts) for cell in series.cells]
        for series in experiment.series
    }
    facts = [row for table in experiment.file.facts for row in table.rows]
    content = [figures, experiment.devices, facts, experiment.file.source]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def points(experiment: Experiment) -> list[Point]:
    return [point for sweep, *_ in experiment.sweeps for point in plan(sweep, sweep.device)]


@pytest.fixture(scope="module", params=NAMES)
def experiment(request: pytest.FixtureRequest) -> Experiment:
    return read_experiment(shipped()[request.param])


def test_these_are_the_experiments() -> None:
    assert tuple(shipped()) == NAMES


def test_an_experiment_quotes_what_was_checked_and_no_more(experiment: Experiment) -> None:
    assert quoted(experiment) == CHECKED[experiment.name]


def test_every_published_figure_has_its_device(experiment: Experiment) -> None:
    devices = [
        series.device_of(cell)
        for series in experiment.series
        for cell in series.cells
        if cell.published
    ]
    assert all(devices)
    assert bool(devices) == (experiment.name in {"blog-2009", "lecture-sdk", "p100-tiles"})


def test_the_lectures_operation_counts_are_those_of_the_shapes_that_are_measured() -> None:
    lecture = read_experiment(shipped()["lecture-sdk"])
    for series in lecture.series:
        for cell in series.cells:
            m, n, k = map(int, str(cell.where["size"]).split("x"))
            assert 2 * m * n * k == cell.facts["operations"]
            # GFLOP/s and milliseconds were published to three digits: they must agree so far.
            assert cell.published is not None
            milliseconds = cell.facts["operations"] / cell.published / 1e6
            assert milliseconds == pytest.approx(cell.facts["ms"], rel=0.01)


def numbers(value: Any) -> set[float]:
    if isinstance(value, dict):
        return set().union(*map(numbers, value.values()))
    if isinstance(value, list):
        return set().union(*map(numbers, value))
    return {value} if isinstance(value, float) else set()


def test_no_measured_figure_stands_in_two_files() -> None:
    """Fractions are figures that somebody measured; whole numbers may be anybody's."""
    by_file = {
        path.stem: numbers(tomllib.loads(path.read_text(encoding="utf-8")).get("series", []))
        for path in shipped().values()
    }
    figures = [figure for found in by_file.values() for figure in found]
    assert len(figures) == len(set(figures)) > 25


def held(series: Series, published: dict[str, dict[str, float]]) -> dict[str, bool]:
    return {
        rule.kind: rule.observe(
            rule.judged(series.figure, series.published, published.get(rule.than, {}))
        )[0]
        for rule in series.rules
    }


def test_the_shapes_that_were_published_are_rules() -> None:
    found: dict[str, dict[str, bool]] = {}
    for name in ("blog-2009", "lecture-sdk", "p100-tiles"):
        experiment = read_experiment(shipped()[name])
        published = {series.name: series.published for series in experiment.series}
        found |= {one.name: held(one, published) for one in experiment.series if one.rules}
    assert found == {
        "naive over the CPU loop": {"rising": True},
        "shared_tile 16 over the CPU loop": {"rising": True, "faster-than": True},
        "cuBLAS": {"faster-than": True},
        "register_tile: T×T elements a thread, 8×8 threads a block": {
            "minimum-at": True,
            "rises-from": True,
        },
        "shared_tile: T×T threads a block, one element each": {
            "falls-until": True,
            "flat-from": True,
        },
    }


def test_the_p100_products_operands_are_indices_that_wrap() -> None:
    experiment = read_experiment(shipped()["p100-tiles"])
    assert {sweep.operands for sweep, *_ in experiment.sweeps} == {(Fill.INDEX,)}
    assert {sweep.dtypes for sweep, *_ in experiment.sweeps} == {("int32",)}
    assert {sweep.sizes for sweep, *_ in experiment.sweeps} == {((512, 512, 1024),)}


def test_the_staged_kernels_run_with_the_published_parameters() -> None:
    """128 threads and 14 blocks of the vector: their only tile where none is asked for."""
    experiment = read_experiment(shipped()["titan-atax"])
    staged = [p for p in points(experiment) if p.variant.name.endswith("_staged")]
    assert {p.variant.op for p in staged} == {"gemv", "gemv_t", "atax"}
    assert {str(p.tile) for p in staged} == {"128x14"}


def test_experiments_come_with_the_package() -> None:
    """The wheel holds configs/ as gpubench/configs; see pyproject.toml."""
    pyproject = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())
    included = pyproject["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert included == {"configs": "gpubench/configs"}
    assert {path.parent.name for path in shipped().values()} == {"configs"}


def test_the_lecture_runs_hot_as_the_sdk_loops_over_the_same_operands() -> None:
    lecture = read_experiment(shipped()["lecture-sdk"])
    on_gpu = [point for point in points(lecture) if point.variant.backend == "cuda"]
    assert on_gpu
    assert {point.cache for point in points(lecture)} == {"hot"}
