"""The steps of action.yml run as on GitHub, with programs that record what they would install."""

import os
import re
import shlex
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from diffs import rows
from newcomer import PAGES
from runner import ACTION, EXPRESSION, RECORDING, STEPS, Job

from gpubench.results.row import write

REAL = f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m gpubench "$@"\n'


@pytest.fixture
def job(tmp_path: Path) -> Job:
    for side in ("base", "new"):
        (tmp_path / side).mkdir()
    for name in ("base.csv", "new-1.csv", "new-2.csv"):
        (tmp_path / name).touch()
    return Job(tmp_path, PYTHONPATH=os.environ["PYTHONPATH"])


def test_inputs_reach_the_scripts_only_by_environment_variables() -> None:
    for step in STEPS:
        assert ("uses" in step) != ("run" in step)
        assert "${{" not in step.get("run", "")
        assert all(EXPRESSION.fullmatch(text) for text in step.get("env", {}).values())
    named = {match for step in STEPS for match in re.findall(r"inputs\.([\w-]+)", str(step))}
    assert named == ACTION["inputs"].keys()


def test_the_page_has_a_row_for_each_input_and_output() -> None:
    page = (PAGES / "ci.md").read_text(encoding="utf-8")
    _, _, section = page.partition("\n## The action\n")
    listed = re.findall(r"^\| `([\w-]+)` \|", section.partition("\n## ")[0], re.MULTILINE)
    assert listed == [*ACTION["inputs"], *ACTION["outputs"]]


STATIC = {"gate": "static", "kernels": "my_*"}
ALLOWING = {"options": "--allow\nspill_bytes=64", "build_options": "--arch sm_80,sm_90"}


@pytest.mark.parametrize(
    ("inputs", "commands"),
    [
        (
            {"kernels": "my_*,cublas", "threshold": "5%", "options": "--sizes 64 --strict"},
            ["ab base new --results R --variants my_*,cublas --threshold 5% F --sizes 64 --strict"],
        ),
        (
            {"base": "v1:base", "gate": "timed", "results": "out"},
            ["ab v1:base new --results out F"],
        ),
        (
            STATIC | ALLOWING,
            [
                "build my_* --kernels base --output R/base.csv --arch sm_80,sm_90",
                "build my_* --kernels new --output R/new.csv --arch sm_80,sm_90",
                "diff --base R/base.csv --new R/new.csv F --allow spill_bytes=64",
            ],
        ),
        (
            {"base": "base.csv", "new": "new-*.csv\n", "kernels": "my_*", "threshold": "5%"},
            ["diff --base base.csv --new new-1.csv new-2.csv --only my_* --threshold 5% F"],
        ),
    ],
)
def test_every_input_reaches_the_command_that_it_is_for(
    job: Job, inputs: dict[str, str], commands: list[str]
) -> None:
    (job.folder / "my_kernel.cu").touch()  # my_* must not be replaced by names of files
    ended = job.run(**{"base": "base", "new": "new", **inputs})
    results = inputs.get("results", str(job.temporary / "gpubench-bench"))
    form = f"--format markdown --output {results}/comment.md"
    assert ended.log[2:] == [re.sub(r"\bR\b", results, x).replace("F", form) for x in commands]
    assert (ended.code, ended.outputs["exit-code"]) == (0, "0")
    assert ended.outputs["comment"] == f"{results}/comment.md"
    assert ended.summary == "a comment\n"
    assert ended.uploaded["path"] == results
    assert ended.uploaded["name"] == Path(results).name


@pytest.mark.parametrize(
    ("inputs", "installed"),
    [({}, "/action"), ({"gate": "static"}, "/action[test]"), ({"extra": "sass"}, "/action[sass]")],
)
def test_the_action_installs_itself_and_ends_as_gpubench_does(
    job: Job, inputs: dict[str, str], installed: str
) -> None:
    job.install(RECORDING.format(code=130))
    ended = job.run(base="base", new="new", **inputs)
    environment = job.temporary / "gpubench-venv"
    assert ended.log[:2] == [f"python3 -m venv {environment}", f"pip install --quiet {installed}"]
    assert (ended.code, ended.outputs["exit-code"]) == (130, "130")
    assert ended.uploaded  # although the last step fails


def test_a_refusal_of_gpubench_becomes_the_comment(job: Job) -> None:
    job.install("#!/bin/sh\necho 'gpubench: --sizes: no' >&2\nexit 2\n")
    for gate in ("timed", "static"):
        ended = job.run(base="base", new="new", gate=gate, results=f"out/{gate}")
        assert (ended.code, ended.uploaded["name"]) == (2, gate)
        assert ended.summary == "gpubench compared nothing. gpubench: --sizes: no\n"
        assert ended.said.count("no\n") == 1  # the second side is not compiled


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"base": ""}, "base: is missing"),
        ({"gate": "fast"}, "gate: 'fast' is neither timed nor static"),
        ({"base": "base.csv"}, "new: 'new' is no result file, but base is one"),
        ({"base": "base.csv", "new": "new-1.csv", "gate": "static"}, "gate: is for directories"),
        ({"gate": "static", "threshold": "5%"}, "threshold: is for times"),
        ({"build_options": "--all"}, "build-options: is for gate static only"),
        ({"options": "--only 'a b'"}, "options: quotes have no meaning here: 'a"),
        ({"options": "--full --output=x"}, "options: --output is set by the action"),
        ({"results": "base"}, "results: 'base' is no empty directory"),
    ],
)
def test_an_input_that_is_wrong_or_has_no_effect_is_refused_in_one_line(
    job: Job, inputs: dict[str, str], message: str
) -> None:
    (job.folder / "base" / "mine.py").touch()
    ended = job.run(**{"base": "base", "new": "new", **inputs})
    assert (ended.code, ended.said.count("\n"), ended.log) == (2, 1, [])
    assert f"::error title=gpubench::{message}" in ended.said
    assert ended.outputs == {"exit-code": "2", "comment": ""}


def test_a_slowdown_of_10_percent_is_rejected(job: Job) -> None:
    job.install(REAL)
    for side, factor in (("base", 1.0), ("new", 1.1)):
        for number in range(3, 8):
            noise = 1 + 1e-6 * number * factor  # no two sweeps have the same times
            sweep = [
                replace(row, round_medians_us=(), median_us=noise * (row.median_us or 0))
                for row in rows(own=factor)
            ]
            write(sweep, job.folder / f"{side}-{number}.csv")
    ended = job.run(base="base-[3-7].csv", new="new-[3-7].csv", threshold="5%")
    assert (ended.code, ended.outputs["exit-code"]) == (1, "1"), ended.said
    assert ended.summary == Path(ended.outputs["comment"]).read_text()
    assert "slower: 3 of 9 points" in ended.summary
    assert len([*Path(ended.uploaded["path"]).rglob("*.csv")]) == 10
