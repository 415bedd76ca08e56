"""docs/first-steps.md: every command on the page is typed as written."""

import shlex
import shutil
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path

import pytest
from commandline import COMMANDS, call
from newcomer import Block, blocks, write
from stub import nothing_measured

from gpubench.results.row import read

INSTALL, *STEPS = blocks("first-steps.md")

WRITES = ("-o", "--output")


def steps() -> list[Block]:
    """The blocks, one for each command."""
    return [
        Block(language="sh", title="", text=line) if block.language == "sh" else block
        for block in STEPS
        for line in (block.text.splitlines() if block.language == "sh" else [""])
    ]


def test_the_page_shows_sweep_plot_report_diff_and_new_kernel() -> None:
    named = [command.split()[0] for block in STEPS for command in block.commands]
    shown = {"sweep", "plot", "report", "diff", "new-kernel"}
    assert [name for name in dict.fromkeys(named) if name in shown] == [
        *("sweep", "plot", "report", "diff", "new-kernel")
    ]
    for block in STEPS:
        assert not block.commands or len(block.commands) == len(block.text.splitlines())


@pytest.mark.slow
def test_every_step_works_as_written(tmp_path: Path) -> None:
    outputs = {}
    for step in steps():
        if step.language == "text":
            printed = [line.split() for line in outputs[step.title]]
            assert all(line.split() in printed for line in step.text.splitlines())
            continue
        if step.language != "sh":
            write(step, tmp_path)
            continue
        (command,) = step.commands
        name, *words = shlex.split(command)
        if words[-1:] == ["second.csv"]:  # the same sweep again
            shutil.copy(tmp_path / "first.csv", tmp_path / "second.csv")
            continue
        if words[:2] == ["my_tile", "--kernels"]:  # as tests of `check` do
            COMMANDS[name].make_context(name, words)
            continue
        with nothing_measured() if name == "sweep" else nullcontext():
            done = call(tmp_path, name, *words)
        assert done.code == 0, f"{command}\n{done.err}"
        outputs[words[0]] = done.out.splitlines()
        if "--dry-run" not in words:
            for option, value in pairwise(words):
                assert option not in WRITES or (tmp_path / value).stat().st_size
    assert {row.variant for row in read(tmp_path / "rows.csv")} == {"cpu_rows", "cpu_blas"}
    for name in ("first.csv", "second.csv", "rows.csv"):
        assert {row.status for row in read(tmp_path / name)} == {"ok"}
