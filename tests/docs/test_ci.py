"""The workflows of docs/ci.md are YAML, and what they run is what gpubench has."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from gpubench.cli import app
from gpubench.options import read_sweep

PAGE = Path(__file__).parents[2] / "docs" / "ci.md"
BLOCKS = re.findall(
    r"^```yaml\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
)
WORKFLOWS: list[Any] = [yaml.safe_load(block) for block in BLOCKS]
COMMANDS = typer.main.get_command(app).commands


def steps(workflow: Any) -> list[Any]:
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


def gpubench_commands() -> list[list[str]]:
    """Words after `gpubench`, of every line of every `run`."""
    found = []
    for workflow in WORKFLOWS:
        for step in steps(workflow):
            for line in step.get("run", "").splitlines():
                words = shlex.split(line)
                at = [n for n, word in enumerate(words) if Path(word).name == "gpubench"]
                if at:
                    end = words.index("||") if "||" in words else len(words)
                    found.append(words[at[0] + 1 : end])
    return found


def test_there_is_a_workflow_for_a_gpu_one_for_its_baseline_and_one_for_a_cpu() -> None:
    assert [workflow["name"] for workflow in WORKFLOWS] == [
        "gpu benchmark",
        "nightly",
        "cpu benchmark",
    ]
    for workflow in WORKFLOWS:
        assert workflow[True]  # `on`, as YAML 1.1 reads it
        assert all("runs-on" in job for job in workflow["jobs"].values())
        assert all(("run" in step) != ("uses" in step) for step in steps(workflow))


def test_both_gates_measure_compare_keep_and_comment() -> None:
    for workflow in (WORKFLOWS[0], WORKFLOWS[2]):
        text = str(workflow)
        for part in ("gpubench", "sweep", "diff", "upload-artifact", "gh pr comment"):
            assert part in text


@pytest.mark.parametrize("words", gpubench_commands(), ids=" ".join)
def test_every_command_is_one_of_ours_and_takes_its_options(words: list[str]) -> None:
    command = COMMANDS[words[0]]
    given = command.make_context(words[0], words[1:]).params  # raises for an unknown option
    if words[0] == "sweep":
        read_sweep(
            {name: given[name] for name in ("sizes", "tiles", "device", "rounds", "budget")}, None
        )
    else:
        assert words[0] == "diff"
        assert given["base"]
        assert given["new"]


def test_the_workflows_run_gpubench_at_all() -> None:
    assert {words[0] for words in gpubench_commands()} == {"sweep", "diff"}
