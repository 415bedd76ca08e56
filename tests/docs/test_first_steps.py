"""docs/first-steps.md: every command on the page is typed as written."""

import shlex
from itertools import pairwise
from pathlib import Path

import pytest
from commandline import GROUP, SHORT, call
from newcomer import Block, Newcomer, blocks

from gpubench.results.row import read

INSTALL, *STEPS = blocks("first-steps.md")

EXIT_CODES = {"diff": {0, 1, 3}}
"""Exit codes allowed, 0 for all other commands: on a busy machine diff may find a change."""

WRITES = ("-o", "--output")


def steps() -> list[Block]:
    """The blocks, one for each command."""
    return [
        Block(language="sh", title="", text=line) if block.language == "sh" else block
        for block in STEPS
        for line in (block.text.splitlines() if block.language == "sh" else [""])
    ]


def test_installing_is_what_the_first_block_does() -> None:
    # .ci/run installs in an empty environment, by the same commands.
    assert INSTALL.title == "install"
    assert [line.split()[-2] for line in INSTALL.text.splitlines()] == ["venv", "install"]


def test_the_page_shows_sweep_plot_report_diff_and_new_kernel() -> None:
    named = [command.split()[0] for block in STEPS for command in block.commands]
    assert set(named) <= set(GROUP.commands)
    assert sorted(
        {"sweep", "plot", "report", "diff", "new-kernel"} & set(named), key=named.index
    ) == ["sweep", "plot", "report", "diff", "new-kernel"]
    for block in STEPS:
        assert not block.commands or len(block.commands) == len(block.text.splitlines())


@pytest.mark.slow
def test_every_step_works_as_written(tmp_path: Path) -> None:
    newcomer = Newcomer(tmp_path)
    first, *others = steps()
    outputs = {}
    assert newcomer.type(first.text).returncode == 0  # the others in this process: it is quicker
    for step in others:
        if step.language == "text":
            assert not set(step.text.splitlines()) - {line.rstrip() for line in outputs[step.title]}
            continue
        if step.language != "sh":
            newcomer.write(step)
            continue
        (command,) = step.commands
        name, *words = shlex.split(command)
        done = call(tmp_path, name, *words, *(SHORT if name == "sweep" else ()))
        assert done.code in EXIT_CODES.get(name, {0}), f"{command}\n{done.err}"
        outputs[words[0]] = done.out.splitlines()
        if "--dry-run" not in words:
            for option, value in pairwise(words):
                assert option not in WRITES or (tmp_path / value).stat().st_size
    assert {row.variant for row in read(tmp_path / "rows.csv")} == {"cpu_rows", "cpu_blas"}
    for name in ("first.csv", "second.csv", "rows.csv"):
        assert {row.status for row in read(tmp_path / name)} == {"ok"}


def test_the_search_for_commands_finds_them() -> None:
    block = Block(language="sh", title="", text=".venv/bin/gpubench a --b \\\n  c\necho x\n")
    assert [command.split() for command in block.commands] == [["a", "--b", "c"]]


@pytest.mark.slow
def test_a_command_that_fails_is_noticed(tmp_path: Path) -> None:
    newcomer = Newcomer(tmp_path)
    for command in ("false", "nowhere", ".venv/bin/gpubench sweep --sizes 0"):
        assert newcomer.type(f"{command}\ntrue").returncode != 0
