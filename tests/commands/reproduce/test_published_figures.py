"""The published figures in experiments are equal to the figures that were checked."""

import hashlib
import json
import tomllib
from pathlib import Path

from gpubench.commands.reproduce.experiment import read_experiment, shipped
from gpubench.plan.sweep import plan

CHECKED = {
    "blog-2009": "6cab5d9647fbd66c",
    "double-tile": "1f42ac84b259edea",
    "lecture-sdk": "bfa9502cba60e6d5",
    "p100-tiles": "dc8c369e017c6862",
    "titan-atax": "58b7604519f4cbd9",
}
"""Hash of each experiment's file without its prose: figures, devices, facts, source, sweeps, rules.
People typed the published figures twice and compared both. The sweeps have the published shapes,
operands, cache state and parameters."""

PROSE = {"title", "about", "notes"}


def checked(path: Path) -> str:
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    data = {key: value for key, value in content.items() if key not in PROSE}
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]


def test_an_experiment_quotes_and_measures_what_was_checked() -> None:
    assert {name: checked(path) for name, path in shipped().items()} == CHECKED


def test_the_staged_kernels_run_with_the_published_parameters() -> None:
    """128 threads and 14 blocks of the vector are the only tile of a sweep without named tiles."""
    experiment = read_experiment(shipped()["titan-atax"])
    points = [point for sweep, *_ in experiment.sweeps for point in plan(sweep, sweep.device)]
    staged = [p for p in points if p.variant.name.endswith("_staged")]
    assert {p.variant.op for p in staged} == {"gemv", "gemv_t", "atax"}
    assert {str(p.tile) for p in staged} == {"128x14"}
