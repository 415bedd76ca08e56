"""`gpubench reproduce` as a user runs it: without a GPU."""

import csv
import signal
from pathlib import Path

import pytest
from commandline import TIMEOUT_S, call, start, wait_for_lines

from gpubench.results.row import read

MINE = """
title = "Two loops"
source = "A user"

[[device]]
name = "A laptop of 2009"

[[sweep]]
device = "cpu"
variants = ["cpu_naive", "cpu_blas"]
sizes = [32]
dtypes = ["float32"]
cache = "hot"
rounds = 1

[[sweep]]
device = "cuda"
variants = ["naive"]
sizes = [32]
tiles = [16]

[[series]]
name = "loop and BLAS"
figure = "ms"
device = "A laptop of 2009"
axis = "variant"
where = { size = 32, cache = "hot", tile = "" }
published = { cpu_blas = 1.25, cpu_naive = 2.5 }
rules = [{ rule = "minimum-at", at = "cpu_blas" }]

[[series]]
name = "naive"
figure = "ms"
device = "A laptop of 2009"
axis = "tile"
where = { variant = "naive" }
published = { 16 = 0.5 }
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.toml").write_text(MINE)
    return tmp_path


def run(folder: Path, *arguments: str) -> tuple[int, str, str]:
    done = call(folder, "reproduce", *arguments)
    return done.code, done.out, done.err


@pytest.mark.slow
def test_a_users_own_experiment_is_shared_and_its_samples_and_verdicts_are_kept(
    folder: Path,
) -> None:
    (folder / "out").mkdir()
    (folder / "out" / "reproduce.md").write_text("an earlier run")
    words = ("mine.toml", "--device", "cpu", "--samples", "all.samples")
    assert run(folder, *words, "--dir", "out") == (
        *(2, ""),
        "gpubench: --dir: out/reproduce.md exists; --force overwrites it\n",
    )
    code, out, err = run(folder, *words, "--on", "local")
    assert code == 0, err
    target = folder / out.splitlines()[-1]
    assert (target.parts[-3], target.parent.name[-10:]) == ("results", "-reproduce")
    target = target.parent
    assert "mine: Two loops" in out
    assert "1.25" in out
    assert "minimum at cpu_blas: measured at cpu_blas, published at cpu_blas" in out
    assert "left out, as it needs an NVIDIA GPU: naive (--device cpu was asked for)" in out
    assert "mine, sweep 1 of 1: cpu_naive, cpu_blas (gemm, float32)" in err
    assert sorted(path.name for path in target.iterdir()) == [
        *("mine.csv", "reproduce.csv", "reproduce.md")
    ]
    rows = {one.variant: one for one in read(target / "mine.csv")}
    assert {name: one.status for name, one in rows.items()} == {"cpu_naive": "ok", "cpu_blas": "ok"}
    assert {one.rounds for one in rows.values()} == {1}
    with (target / "reproduce.csv").open(newline="", encoding="utf-8") as file:
        lines = {line["label"]: line for line in csv.DictReader(file)}
    assert float(lines["cpu_blas"]["measured"]) * 1e3 == pytest.approx(rows["cpu_blas"].median_us)
    assert (lines["16"]["published"], lines["16"]["measured"]) == ("0.5", "")
    assert "shape " in (target / "reproduce.md").read_text(encoding="utf-8")
    context, *samples = (folder / "all.samples").read_text().splitlines()
    assert "gpubench_sweep" in context
    assert len(samples) == 2
    assert "--samples: all.samples exists" in run(folder, *words, "--dir", "new")[2]


def test_a_dry_run_lists_the_sweeps_and_measures_nothing(folder: Path) -> None:
    code, out, _ = run(folder, "mine.toml", "--dry-run")
    assert code == 0
    assert ["mine", "cpu_naive,", "cpu_blas", "(gemm,", "float32)", "2"] in [
        line.split()[:6] for line in out.splitlines()
    ]
    assert ["mine", "naive", "(gemm,", "float32)", "1", "no", "GPU"] in map(
        str.split, out.splitlines()
    )
    assert "nothing is run" in out
    assert [path.name for path in folder.iterdir()] == ["mine.toml"]


def test_the_list_measures_nothing_and_needs_no_checkout(folder: Path) -> None:
    code, out, err = run(folder, "--list", "p100-tiles", "mine.toml", "fast-cu")
    assert (code, err) == (0, "")
    assert "Tesla P100-SXM2-16GB" in out
    assert "A laptop of 2009" in out
    assert "pranjalssh/fast.cu" in out
    assert [path.name for path in folder.iterdir()] == ["mine.toml"]


REFUSED = {
    "unknown experiment": (("p100-tile",), "did you mean 'p100-tiles'"),
    "missing file": (("nowhere.toml",), "cannot read nowhere.toml"),
    "bad rounds": (("mine.toml", "--rounds", "0"), "--rounds"),
    "output in a file": (("mine.toml", "--device", "cpu", "--dir", "/dev/null/x"), "--dir"),
    "output of a resumed run": (("mine.toml", "--resume", "x", "--dir", "y"), "leave --dir out"),
    "samples into the results": (
        ("mine.toml", "--device", "cpu", "--dir", "out", "--samples", "out/mine.csv"),
        "--samples: out/mine.csv is a file of the results",
    ),
    "output behind a loop of links": (
        ("mine.toml", "--device", "cpu", "--dir", "loop/out", "--samples", "a.samples"),
        "--dir: cannot make the directory loop/out",
    ),
    "bad file": (("bad.toml",), "bad.toml: Object missing required field"),
    "listing with a checkout": (("--list", "--checkout", "."), "leave --checkout out"),
}


@pytest.mark.slow
def test_bad_input_is_one_line_and_exit_2_and_leaves_no_file(folder: Path) -> None:
    (folder / "bad.toml").write_text("source = 'me'\n")
    (folder / "loop").symlink_to("loop")
    names = ["bad.toml", "loop", "mine.toml"]
    for case, (arguments, why) in REFUSED.items():
        code, out, err = run(folder, *arguments)
        assert (code, out) == (2, ""), case
        assert len(err.splitlines()) == 1, case
        assert err.startswith("gpubench: "), case
        assert why in err, case
        assert sorted(path.name for path in folder.iterdir()) == names, case


@pytest.mark.slow
def test_ctrl_c_keeps_what_was_measured_and_exits_130(folder: Path) -> None:
    text = MINE.replace('"cpu_naive", ', "").replace(", cpu_naive = 2.5", "")
    text = text.replace("sizes = [32]\ndtypes", f"sizes = {list(range(8, 200))}\ndtypes")
    (folder / "mine.toml").write_text(text)
    partial = folder / "out" / "mine.sweep-1.csv.partial"
    with start(folder, "reproduce", "mine.toml", "--device", "cpu", "--dir", "out") as process:
        wait_for_lines(partial, 5, process)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert "interrupted: what was measured is kept" in err
    assert out.splitlines()[-1] == "out/reproduce.md"
    assert 3 <= len(read(folder / "out" / "mine.csv")) < 192
    assert "--resume out continues" in err
    assert partial.exists()
