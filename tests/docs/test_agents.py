"""The commands in AGENTS.md run, and exit codes, fields and columns are those of the page."""

import json
import re
import shlex
from importlib import import_module
from pathlib import Path

import pytest
from commandline import COMMANDS, OWN, call
from diffs import rows
from newcomer import PAGES, REPOSITORY

from gpubench.commands.diff.findings import DiffVerdict, Limits
from gpubench.results.row import NAMES, write

TEXT = (REPOSITORY / "AGENTS.md").read_text(encoding="utf-8")
TYPED = re.findall(r"`(?:git bisect run )?gpubench ([a-z-]+ .*?)`", TEXT)
ab = import_module("gpubench.commands.diff.ab")  # `diff.ab` is a function


def test_the_page_is_short_and_names_existing_commands_and_fields() -> None:
    assert len(TEXT.splitlines()) <= 60
    commands = COMMANDS
    for typed in TYPED:
        name, *words = shlex.split(typed)
        commands[name].make_context(name, words)  # raises for an unknown option
    options = {flag for name in commands for param in commands[name].params for flag in param.opts}
    assert set(re.findall(r"--[a-z][\w-]+", TEXT)) <= options | {"--help"}
    schema = json.loads((PAGES / "schema" / "diff-1.json").read_text())["properties"]
    of_point = schema["points"]["items"]["properties"]
    all_names = {*schema, *of_point, *NAMES, *DiffVerdict, *commands, "ok", "cpu_blas"}
    named = set(re.findall(r"`(\w+)`", TEXT))
    assert named <= all_names
    assert {"exit_code", "verdict", "status", "median_us", "ambiguous", "clock"} <= named


def test_the_commands_on_files_print_what_a_program_can_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, own in (("base.csv", 1.0), ("new.csv", 1.1)):
        write(rows(own=own), tmp_path / name)
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "my_kernel.py").write_text(OWN)
    files = [Path("base.csv")], [Path("new.csv")]
    monkeypatch.setattr(ab, "measure_in_turns", lambda *_: (files, Limits.q))
    done = {}
    for typed in TYPED:
        name, *words = shlex.split(typed.replace("v1:", ""))
        if name in {"deviceinfo", "show", "ab", "diff"} or "--dry-run" in words:
            done[name] = call(tmp_path, name, *words)
    expected = {"deviceinfo": 0, "sweep": 0, "show": 0, "ab": 1, "diff": 1}
    assert {name: ended.code for name, ended in done.items()} == expected
    assert json.loads(done["deviceinfo"].out)
    assert len(json.loads(done["show"].out)["rows"]) == 9
    for answer in (json.loads(done["diff"].out), json.loads((tmp_path / "diff.json").read_text())):
        verdicts = {point["variant"]: point["verdict"] for point in answer["points"]}
        assert (answer["exit_code"], verdicts["own"], verdicts["cublas"]) == (1, "slower", "same")
