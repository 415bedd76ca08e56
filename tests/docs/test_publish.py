"""`benchmarks/publish.py`: steps that are done once, and what collecting their files says."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from newcomer import REPOSITORY
from samples import sample

from gpubench.errors import UsageError
from gpubench.results.output import lock
from gpubench.results.row import Row, read, write

sys.path.insert(0, str(REPOSITORY / "benchmarks"))
import archive as archives
import publish
import tensor
from steps import STEPS, TENSOR, Step

Run = Callable[..., int]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Steps run in a tree of their own that git does not know, without a GPU."""
    monkeypatch.setattr(publish, "WORK", tmp_path / "work")
    monkeypatch.setattr(publish, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(publish, "committed", lambda given: given or "0123456789ab")
    monkeypatch.setattr(publish, "machine", lambda: (0, False, "2 CPUs"))
    (tmp_path / "results").mkdir()

    def run(*steps: Step, names: tuple[str, ...] = (), budget_s: float = 60, **more: Any) -> int:
        for module in (publish, archives):
            monkeypatch.setattr(module, "STEPS", steps)
        return publish.run(list(names), budget_s, None, more.get("archive"))

    return run


def writing(name: str, text: str, file: str, **facts: Any) -> Step:
    """A step that adds a text to a file, and says what it printed."""
    code = f"print({text!r}); open({file!r}, 'a').write({text!r})"
    return Step(name, 10, f'python -c "{code}" > cpu/{name}.txt', (file,), gpus=0, **facts)


def test_a_step_is_done_once_until_its_code_changes(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    step = writing("one", "x", "cpu/one.csv")
    assert run(step, budget_s=4) == 0
    assert capsys.readouterr().out == "one: the 5 s that it takes are not left\n"
    assert run(step) == run(step) == 0
    assert (publish.WORK / "cpu/one.csv").read_text() == "x"
    assert capsys.readouterr().out.count("one: exit 0") == 1
    assert publish.records()["one"]["commit"] == "0123456789ab"
    assert not publish.is_done(replace(step, command=step.command + "y"), publish.records())
    assert run(step, names=("one",)) == 0  # a named one runs again
    assert "one: exit 0" in capsys.readouterr().out
    with pytest.raises(UsageError, match="no such step: two"):
        run(step, names=("two",))


def test_a_step_that_ends_without_its_files_or_in_time_is_not_done(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(Step("none", 10, "python -c 0", ("cpu/x.csv",), gpus=0)) == 1
    assert run(Step("raises", 10, 'python -c "print(1); 1 / 0" > cpu/r.txt', gpus=0)) == 1
    forever = Step("long", 2, 'python -c "while True: pass" > cpu/l.txt', gpus=0)
    assert run(forever, budget_s=1.2) == 1
    later = Step("later", 10, "python -c 0", gpus=0, reads=("h200/no.csv",))
    assert run(later, Step("gpu", 10, "python -c 0")) == 0
    assert publish.records() == {}
    out = capsys.readouterr().out
    assert "long: exit None after 1 s" in out
    assert "later: reads h200/no.csv, which no step has made" in out
    assert "gpu" not in out


@pytest.mark.parametrize(("logged", "code"), [("", 1), ("E1122 torch] ", 0)])
def test_a_step_that_logs_a_traceback_of_its_own_is_not_done(
    run: Run, logged: str, code: int
) -> None:
    said = f"{logged}Traceback (most recent call last):"
    command = f"import sys; print({said!r}, file=sys.stderr); print(1)"
    step = Step("one", 10, f'python -c "{command}" > cpu/one.txt', gpus=0)
    assert run(step) == code


def test_runs_beside_each_other_share_the_steps_that_need_not_be_alone(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(publish, "machine", lambda: (0, True, "2 CPUs"))
    (publish.WORK / "steps").mkdir(parents=True)
    steps = [
        writing(name, "x", f"cpu/{name}", alone=name == "alone") for name in ("alone", "a", "b")
    ]
    with (publish.WORK / "steps" / "a.lock").open("w") as held:
        assert lock(held.fileno())
        assert run(*steps) == 0
    assert set(publish.records()) == {"b"}
    assert run(*steps) == 0
    assert set(publish.records()) == {"a", "b"}
    assert capsys.readouterr().out.count("exit 0") == 2


def test_no_text_names_the_place_of_the_checkout(run: Run) -> None:
    assert run(writing("one", f"{publish.ROOT}/benchmarks/a.cu(8)", "cpu/one.md")) == 0
    assert (publish.WORK / "cpu/one.md").read_text() == "benchmarks/a.cu(8)"


def test_steps_that_are_compared_are_made_by_one_run(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = [writing(name, "x", f"cpu/{name}", compared="pair") for name in ("a", "b")]
    (publish.WORK / "steps").mkdir(parents=True)
    with (publish.WORK / "steps" / "pair.lock").open("w") as held:
        assert lock(held.fileno())
        assert run(*steps) == 0
    assert publish.records() == {}
    assert run(*steps, names=("b",)) == 0
    monkeypatch.setattr(publish, "machine", lambda: (0, False, "another"))
    assert run(*steps) == 0
    assert {facts["machine"] for facts in publish.records().values()} == {"another"}


def test_collecting_says_what_changed_and_what_is_flagged(run: Run, tmp_path: Path) -> None:
    rows = [sample(tile=str(tile), round_medians_us="100;100;100", driver="580") for tile in (4, 8)]
    old, new = publish.RESULTS / "cpu/a.csv", tmp_path / "new.csv"
    old.parent.mkdir()
    write(rows, old)
    write([replace(row, driver="590") for row in rows], new)
    copy = f"python -c \"import shutil; shutil.copy('{new}', 'cpu/a.csv')\""
    archive = tmp_path / "a.tar.gz"
    assert run(Step("a", 10, copy, ("cpu/a.csv", "cpu/a.jsonl.gz"), gpus=0), archive=archive) == 1
    step = Step("a", 10, copy, ("cpu/a.csv",), gpus=0)
    assert run(step, archive=archive) == 0
    assert archives.collect([archive, archive], publish.RESULTS) == 0
    said = (publish.RESULTS / "CHANGES.md").read_text()
    assert said.count("## a, ") == 1
    assert "- cpu/a.csv: driver 580 → 590" in said
    assert "- cpu/a.csv: `diff` exit 2: gpubench: old cpu/a.csv was measured on driver 580" in said
    assert read(old)[0].driver == "590"
    assert json.loads((publish.RESULTS / "steps.json").read_text())["a"]["exit"] == 0
    write([replace(rows[0], round_medians_us="100;100;120"), rows[1]], tmp_path / "new.csv")
    (line,) = archives.changes("new.csv", publish.RESULTS, tmp_path)
    assert line.endswith(f"rounds disagree, nothing is claimed of {rows[0].label}")


def test_a_tree_that_differs_from_its_commit_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publish, "ROOT", tmp_path)
    with pytest.raises(UsageError, match="--commit"):
        publish.committed(None)
    assert publish.committed("0123456789abcdef") == "0123456789ab"
    git = ("git", "-C", str(tmp_path), "-c", "user.name=x", "-c", "user.email=x@x")
    subprocess.run((*git, "init", "-q"), check=True)
    subprocess.run((*git, "commit", "-q", "--allow-empty", "-m", "x"), check=True)
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "x").write_text("")  # what was collected may be there
    assert len(publish.committed("other")) == 12
    (tmp_path / "y.py").write_text("")
    with pytest.raises(UsageError, match=r"commit first.*y\.py"):
        publish.committed(None)


def test_every_step_has_a_name_files_of_its_own_and_at_most_eight_minutes() -> None:
    assert len({step.name for step in STEPS}) == len(STEPS)
    files = [name for step in STEPS for name in step.files]
    assert len(set(files)) == len(files)
    for step in STEPS:
        assert step.files, step.name
        assert step.bound_s <= 480, step.name
        assert set(step.reads) <= set(files), step.name
        for word in step.command.split():
            if word.startswith("ROOT/benchmarks/"):
                assert (REPOSITORY / word.removeprefix("ROOT/")).is_file(), word


def test_the_parts_of_the_tensor_suites_are_all_of_them() -> None:
    for name, suite in tensor.SUITES.items():
        parts = [tensor.part(suite.problems, *part) for part in TENSOR[name].values()]
        pairs = [
            [(dtype, size) for dtype, sizes in problems.items() for size in sizes.split(",")]
            for problems in (suite.problems, *parts)
        ]
        assert sorted(pairs[0]) == sorted(chain(*pairs[1:]))


def test_results_name_no_directory_of_the_machine_that_measured_them() -> None:
    paths = sorted((REPOSITORY / "results").rglob("*.csv*"))
    assert len(paths) > 40
    for path in paths:
        content = path.read_bytes()
        text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode()
        assert re.findall(r"--[a-z-]+ /\S*", text) == [], path


def test_a_library_too_short_to_sustain_is_compared_in_bursts() -> None:
    def state(name: str, **times_us: float) -> list[Row]:
        return [
            sample(name, median_us=us, round_medians_us=f"{us};{us}", state=state)
            for state, us in times_us.items()
        ]

    kernel = state("wgmma_mixed", burst=5.0, sustained=6.0)
    both = [*kernel, *state("cublas", burst=7.5, sustained=9.0)]
    alone = [*kernel, *state("cublas", burst=7.5)]
    assert "| cublas | 238.6 |  |  | 1.500 |" in list(tensor.table(both))[-1]
    assert "| cublas, in bursts | 286.3 |  |  | 1.250 |" in list(tensor.table(alone))[-1]
    assert list(tensor.table(kernel))[-1].endswith("no library |")
    once = [*kernel, *(replace(row, round_medians_us="7.5") for row in alone[2:])]
    assert "| cublas, in bursts | 286.3 |  |  | 1.250 |  |" in list(tensor.table(once))[-1]
