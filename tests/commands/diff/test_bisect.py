"""`gpubench bisect`: its exit code for each commit, and the commit that `git bisect run` finds."""

import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from commandline import Done, call
from diffs import rows

from gpubench.results.row import write

ab = import_module("gpubench.commands.diff.ab")  # `diff.ab` is a function

PYTHON = """#!/bin/sh
[ -f "$(dirname "$0")/../rows.csv" ] || { echo 'gpubench: does not build' >&2; exit 2; }
for word in "$@"; do
  case "$word" in --output=*) cp "$(dirname "$0")/../rows.csv" "${word#--output=}";; esac
done
"""
"""An interpreter whose sweeps copy the rows of the file beside it."""


def git(folder: Path, *words: str, check: bool = True) -> str:
    command = ["git", "-c", "user.name=A", "-c", "user.email=a@example.org", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=check).stdout


def commit(folder: Path, message: str) -> None:
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "--allow-empty", "-m", message)


def environment(folder: Path, own: float | None, **facts: object) -> None:
    """Write an installation in which the time of `own` has this factor. None: it does not start."""
    program = folder / "env" / "bin" / "python"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(PYTHON)
    program.chmod(0o755)
    table = folder / "env" / "rows.csv"
    table.unlink(missing_ok=True)
    if own is not None:
        measured = [replace(row, round_medians_us=(row.median_us,)) for row in rows(own=own)]
        write([replace(row, **facts) if row.variant == "own" else row for row in measured], table)


WRONG = {"status": "wrong", "reason": "off", "median_us": None, "round_medians_us": ()}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository whose first commit is tagged v1."""
    git(tmp_path, "init", "-q")
    (tmp_path / ".gitignore").write_text("/results\n")
    environment(tmp_path, 1.0)
    commit(tmp_path, "Start")
    git(tmp_path, "tag", "v1")
    return tmp_path


def judged(folder: Path, *words: str) -> Done:
    return call(folder, "bisect", "v1:env", "env", "--pairs", "5", "--threshold", "5%", *words)


def test_git_bisect_finds_the_planted_commit_although_one_does_not_build(repository: Path) -> None:
    for number, own in enumerate((1.0, None, 1.0, 1.25), 1):
        environment(repository, own)
        commit(repository, f"Change {number}")
    git(repository, "bisect", "start", "HEAD", "v1")
    words = ("bisect", "v1:env", "env", "--pairs", "5", "--threshold", "5%")
    said = git(repository, "bisect", "run", sys.executable, "-m", "gpubench", *words)
    assert "is the first bad commit" in said
    assert "\n    Change 4\n" in said
    assert git(repository, "status", "--porcelain") == ""


@pytest.mark.parametrize(
    ("own", "facts", "code"),
    [
        (0.8, {}, 0),
        (1.25, {}, 1),
        (1.05, {}, 125),  # ambiguous: at the threshold
        (1.0, WRONG, 125),
        (None, {}, 125),
    ],
)
def test_the_code_of_a_commit_says_good_bad_or_not_judged(
    repository: Path, own: float | None, facts: dict[str, object], code: int
) -> None:
    environment(repository, own, **facts)
    done = judged(repository)
    assert done.code == code, done.out
    assert "/tmp/gpubench-" not in done.out  # noqa: S108 # the unpacked commit was removed
    if own is None:
        assert done.err.endswith("env/bin/python): does not build\n")


@pytest.mark.parametrize("base", ["v1:env", "v1:../env"])
def test_a_directory_of_a_revision_is_found_from_a_folder_of_the_repository(
    repository: Path, base: str
) -> None:
    environment(repository, 0.8)
    (repository / "folder").mkdir()
    words = ("bisect", base, "../env", "--pairs", "5", "--threshold", "5%")
    done = call(repository / "folder", *words)
    assert done.code == 0, done.err


def test_an_unexpected_error_is_not_a_bad_commit(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repository / "kernels").mkdir()
    (repository / "kernels" / "rows.py").write_text("a = 1\n")
    commit(repository, "Add a kernel")
    (repository / "kernels" / "rows.py").write_text("a = 2\n")

    def measure(sides: tuple[Any, Any], *_: object) -> None:
        contents = [(side.kernels or Path()).joinpath("rows.py").read_text() for side in sides]
        raise AssertionError(contents)

    monkeypatch.setattr(ab, "measure_in_turns", measure)
    done = call(repository, "bisect", "HEAD:kernels", "kernels")
    assert done.code == 128
    assert "unexpected: AssertionError: ['a = 1\\n', 'a = 2\\n']" in done.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("v1:env", "env", "--nope"), "No such option: --nope"),
        (("v1:env",), "Missing argument 'NEW'."),
        (("v9:env", "env"), "BASE: 'v9:env': not a valid object name"),
        (("nowhere", "env"), "BASE: 'nowhere' is neither a Python interpreter"),
        (("v1:env", "env", "--pairs", "1"), "--pairs: 1 is out of range"),
    ],
)
def test_an_error_at_every_commit_ends_the_bisection(
    repository: Path, words: tuple[str, ...], message: str
) -> None:
    environment(repository, 1.25)
    done = call(repository, "bisect", *words)
    assert (done.code, done.out, done.err.count("\n")) == (128, "", 1)
    assert message in done.err


def test_a_budget_replaces_the_number_of_pairs(repository: Path) -> None:
    environment(repository, 1.25)
    words = ("bisect", "v1:env", "env", "--budget", "1m", "--threshold", "5%")
    done = call(repository, *words)
    assert done.code == 1, done.err
