"""`research/dodo.py`: the tasks that make results/, and the effects of running a task."""

import csv
import gzip
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest
from newcomer import REPOSITORY, RESEARCH
from samples import sample

from gpubench.results.row import read, write

pytest.importorskip("doit", reason="doit is in the extra `dev`")
sys.path.insert(0, str(RESEARCH))
import dodo


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an own results/ folder, in a tree without git."""
    monkeypatch.setattr(dodo, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(dodo, "SCRATCH", tmp_path / "scratch")
    monkeypatch.setattr(dodo, "MEASURED", tmp_path / "results" / "measured.csv")
    monkeypatch.setattr(dodo, "get_var", lambda _name: "0123456789ab")
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "measured.csv").write_text("task,machine,utc,commit,wall_s,files\n")
    return tmp_path / "results"


def test_a_task_records_who_measured_and_compares_before_it_replaces(results: Path) -> None:
    (results / "cpu").mkdir()
    rows = [
        sample(tile=str(tile), round_medians_us=(100, 100, 100), driver="580") for tile in (4, 8)
    ]
    write(rows, results / "cpu" / "a.csv")
    new = [replace(row, driver="590", round_medians_us=(100, 100, 101)) for row in rows]
    write(new, results / "new.csv")
    copy = f"cp {results}/new.csv cpu/a.csv; echo {dodo.ROOT}/x.cu > cpu/a.txt; exit 1"
    assert dodo.measure("cpu:a", copy, ["cpu/a.csv", "cpu/a.txt"])
    assert read(results / "cpu" / "a.csv")[0].driver == "590"
    assert (results / "cpu" / "a.txt").read_text() == "x.cu\n"  # no directory of this machine
    said = (dodo.SCRATCH / "changes.txt").read_text()
    assert "cpu/a.csv: gpubench diff: exit 2" in said
    assert "was measured on driver 580" in said
    (line,) = csv.DictReader((results / "measured.csv").read_text().splitlines())
    assert (line["task"], line["commit"]) == ("cpu:a", "0123456789ab")
    assert line["files"] == "cpu/a.csv cpu/a.txt"


def test_no_saved_file_has_a_path_of_this_machine(results: Path) -> None:
    reason = f"in {dodo.ROOT}/x.cu"
    assert dodo.measure("cpu:a", f"echo '{reason}' | tee a.csv b.csv", ["a.csv", "b.csv.gz"])
    assert (results / "a.csv").read_text() == "in x.cu\n"
    assert gzip.decompress((results / "b.csv.gz").read_bytes()) == b"in x.cu\n"


@pytest.mark.parametrize(
    "command",
    ["true", "echo 1 > cpu/a.txt; kill $$", "python -c 'print(1); 1 / 0' > cpu/a.txt"],
)
def test_a_task_that_fails_or_leaves_no_file_replaces_nothing(results: Path, command: str) -> None:
    (results / "cpu").mkdir()
    (results / "cpu" / "a.txt").write_text("old")
    assert not dodo.measure("cpu:a", command, ["cpu/a.txt"])
    assert (results / "cpu" / "a.txt").read_text() == "old"


def test_a_traceback_in_the_output_of_a_described_kernel_is_no_failure(results: Path) -> None:
    said = "echo '[mine] Traceback (most recent call last):'"
    assert dodo.measure("cpu:a", f"{said}; echo > a.txt; exit 1", ["a.txt"])
    assert (results / "a.txt").exists()


def test_a_tree_without_git_needs_its_commit_stated(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dodo, "get_var", lambda _name: None)
    monkeypatch.setattr(dodo, "package_version", lambda: ("0", None))
    assert not dodo.measure("cpu:a", "echo > a.txt", ["a.txt"])
    assert not (results / "a.txt").exists()


def test_every_task_has_files_of_its_own_and_scripts_that_can_be_imported() -> None:
    tasks = [*dodo.task_gpu(), *dodo.task_gpus(), *dodo.task_cpu()]
    targets = [target for task in tasks for target in task["targets"]]
    assert len(set(targets)) == len(targets)
    for task in tasks:
        assert task["targets"], task["name"]
        for name in task["file_dep"]:
            assert (REPOSITORY / name).is_file() or name in targets, name
            if name.endswith(".py"):
                import_module(Path(name).stem)


def test_a_file_goes_to_the_folder_of_the_gpu_and_replaces_that_of_the_other_one(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dodo, "CARD", "h100")
    (results / "h200").mkdir()
    (results / "h200" / "a.txt").write_text("old")
    ((name, command, files),) = (
        arguments for _, arguments in dodo.step("gpu:a", "echo 1 > CARD/a.txt")["actions"]
    )
    assert dodo.measure(name, command, files)
    assert [path.name for path in results.rglob("a.txt")] == ["a.txt"]
    assert (results / "h100" / "a.txt").read_text() == "1\n"
