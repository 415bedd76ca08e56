"""The workflows of docs/ci.md, and our own, are valid and run existing commands of gpubench."""

import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import yaml
from commandline import COMMANDS
from newcomer import PAGES, REPOSITORY

import gpubench
from gpubench.options import read_sweep
from gpubench.results import build_row

BLOCKS = re.findall(
    r"^```yaml\n(.*?)^```", (PAGES / "ci.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
)
WORKFLOWS: list[Any] = [yaml.safe_load(block) for block in BLOCKS]


def steps(workflow: Any) -> list[Any]:
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


def check_form(workflow: Any) -> None:
    assert workflow[True]  # YAML 1.1 reads the key `on` as true
    assert all("runs-on" in job for job in workflow["jobs"].values())
    assert all(("run" in step) != ("uses" in step) for step in steps(workflow))


def uses_of_the_action() -> list[dict[str, str]]:
    used = [step for at in WORKFLOWS for step in steps(at) if "gpubench@" in step.get("uses", "")]
    return [step["with"] for step in used]


def gpubench_commands() -> list[list[str]]:
    """Return the words after `gpubench` in all lines of all `run` steps and of the action."""
    commands = []
    for inputs in uses_of_the_action():
        arguments = [inputs["base"], inputs["new"], *inputs.get("options", "").split()]
        compares = inputs.get("gate") == "static" or inputs["base"].endswith(".csv")
        commands.append(["diff" if compares else "ab", *arguments])
        if options := inputs.get("build-options"):
            commands.append(["build", "all", *options.split()])
    for workflow in WORKFLOWS:
        for step in steps(workflow):
            for line in step.get("run", "").splitlines():
                words = shlex.split(line)
                starts = [n for n, word in enumerate(words) if Path(word).name == "gpubench"]
                if starts:
                    end = words.index("||") if "||" in words else len(words)
                    commands.append(words[starts[0] + 1 : end])
    return commands


def test_there_are_workflows_with_and_without_a_gpu() -> None:
    names = [workflow["name"] for workflow in WORKFLOWS]
    with_gpu = ["gpu benchmark", "jobs of their own", "comment", "nightly"]
    assert names == [*with_gpu, "static gate", "cpu benchmark"]
    for workflow in WORKFLOWS:
        check_form(workflow)


def test_workflows_of_pull_requests_use_the_action_and_may_write_nothing() -> None:
    action = yaml.safe_load((REPOSITORY / "action.yml").read_text(encoding="utf-8"))
    of_pulls = [workflow for workflow in WORKFLOWS if workflow[True] == "pull_request"]
    assert len(of_pulls) == len(uses_of_the_action()) == 4
    for workflow, inputs in zip(of_pulls, uses_of_the_action(), strict=True):
        assert inputs.keys() <= action["inputs"].keys()
        assert workflow["permissions"] == {"contents": "read"}


def test_the_workflow_that_comments_runs_nothing_of_a_pull_request() -> None:
    (comments,) = (workflow for workflow in WORKFLOWS if workflow["name"] == "comment")
    of_pulls = [workflow["name"] for workflow in WORKFLOWS if workflow[True] == "pull_request"]
    assert comments[True]["workflow_run"]["workflows"] == of_pulls
    uses = [step["uses"] for step in steps(comments) if "uses" in step]
    assert uses == ["actions/download-artifact@v4"]
    (run,) = (step["run"] for step in steps(comments) if "run" in step)
    assert [line.split()[0:3] for line in run.splitlines()[1:]] == [["gh", "pr", "comment"]]
    assert "${{" not in run  # an expression, which the runner would paste into the script


def test_every_command_exists_and_takes_its_options() -> None:
    commands = gpubench_commands()
    assert {words[0] for words in commands} == {"ab", "sweep", "diff", "history", "build"}
    for words in commands:
        command = COMMANDS[words[0]]
        parameters = command.make_context(
            words[0], words[1:]
        ).params  # raises for an unknown option
        if words[0] == "sweep":
            names = ("sizes", "tiles", "device", "rounds", "budget")
            read_sweep({name: parameters[name] for name in names}, None)
        elif words[0] == "diff":
            sides = len(parameters["files"] or ())
            assert parameters["base"] or parameters["against"] or sides, words
            assert parameters["new"] or sides > 1, words


def test_our_own_workflow_compares_our_kernels_with_the_kept_file() -> None:
    rows = build_row.read(REPOSITORY / "results" / "build.csv")
    assert "error" not in {row.status for row in rows}
    workflow = yaml.safe_load((REPOSITORY / ".github" / "workflows" / "ci.yml").read_text())
    *made, compared = workflow["jobs"]["build"]["steps"]
    assert compared == {"uses": "./", "with": {"base": "results/build.csv", "new": "build.csv"}}
    commands = [step.get("run", "") for step in made]
    assert commands[-1].endswith(" --output build.csv")
    (versions,) = {(row.compiler or "").removeprefix("NVRTC ") for row in rows}
    assert any(f"nvidia-cuda-nvrtc=={versions}.*" in command for command in commands)


def test_a_release_has_the_tag_of_its_version() -> None:
    workflow = yaml.safe_load((REPOSITORY / ".github" / "workflows" / "release.yml").read_text())
    check_form(workflow)
    jobs = workflow["jobs"]
    assert (jobs["test"]["needs"], jobs["publish"]["needs"]) == ("build", "test")
    (check,) = (step["run"] for step in jobs["build"]["steps"] if "tag" in step.get("name", ""))
    for tag, code in ((f"v{gpubench.__version__}", 0), ("v0.0.99", 1), ("vx", 1)):
        shell = {"GITHUB_REF_NAME": tag, "PATH": os.environ["PATH"]}
        command = ["/bin/bash", "-e", "-c", check]
        assert subprocess.run(command, cwd=REPOSITORY, env=shell, check=False).returncode == code
