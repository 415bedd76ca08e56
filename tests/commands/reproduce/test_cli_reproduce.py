"""`gpubench reproduce` as a user runs it: without a GPU."""

import csv
from pathlib import Path

import pytest
from commandline import call, files_in
from stub import nothing_measured

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


def test_a_users_own_experiment_is_measured_and_its_verdicts_are_kept(folder: Path) -> None:
    words = ("mine.toml", "--device", "cpu")
    with nothing_measured():
        code, out, err = run(folder, *words)
        shared = run(folder, *words[:3], "--on", "local")
    assert (code, shared[0], "no process is started here" in shared[2]) == (0, 2, True), err
    target = (folder / out.splitlines()[-1]).parent
    assert (target.parts[-2], target.name[-10:]) == ("results", "-reproduce")
    for part in (
        "mine: Two loops",
        "1.25",
        "minimum at cpu_blas: measured at cpu_blas, published at cpu_blas",
        "left out, because they need an NVIDIA GPU: naive (because of --device cpu)",
    ):
        assert part in out
    assert "mine, sweep 1 of 1: cpu_naive, cpu_blas (gemm, float32)" in err
    assert files_in(target) == ["mine.csv", "reproduce.csv", "reproduce.md"]
    rows = {row.variant: row for row in read(target / "mine.csv")}
    assert {row.rounds for row in rows.values()} == {1}
    with (target / "reproduce.csv").open(newline="", encoding="utf-8") as file:
        lines = {line["label"]: line for line in csv.DictReader(file)}
    assert float(lines["cpu_blas"]["measured"]) * 1e3 == pytest.approx(rows["cpu_blas"].median_us)
    assert (lines["16"]["published"], lines["16"]["measured"]) == ("0.5", "")
    assert "shape " in (target / "reproduce.md").read_text(encoding="utf-8")


def test_a_dry_run_and_the_list_measure_nothing_and_need_no_checkout(folder: Path) -> None:
    code, out, _ = run(folder, "mine.toml", "--dry-run")
    assert (code, "nothing is run" in out) == (0, True)
    lines = " ".join(out.split())
    assert "mine cpu_naive, cpu_blas (gemm, float32) 2 " in lines
    assert "mine naive (gemm, float32) 1 no GPU" in lines
    code, out, _ = run(folder, "fast-cu", "--dry-run")
    assert (code, "fast-cu needs --checkout DIR" in out) == (0, True)
    code, out, err = run(folder, "--list", "p100-tiles", "mine.toml", "fast-cu")
    assert (code, err) == (0, "")
    for source in ("Tesla P100-SXM2-16GB", "A laptop of 2009", "pranjalssh/fast.cu"):
        assert source in out
    code, out, err = run(folder)
    assert (code, "titan-atax" in out) == (0, True)
    assert "name experiments to run, or use --all; --dry-run shows how long they take" in err
    assert files_in(folder) == ["mine.toml"]


REFUSED = {
    "unknown experiment": (("p100-tile",), "did you mean 'p100-tiles'"),
    "output in a file": (("mine.toml", "--device", "cpu", "--dir", "/dev/null/x"), "--dir"),
    "output of a resumed run": (("mine.toml", "--resume", "x", "--dir", "y"), "leave --dir out"),
    "output behind a loop of links": (
        ("mine.toml", "--device", "cpu", "--dir", "loop/out"),
        "--dir: cannot write loop/out/reproduce.md: Too many levels of symbolic links",
    ),
    "a file of an earlier run": (
        ("mine.toml", "--device", "cpu", "--dir", "old"),
        "--dir: old/reproduce.md exists; --force overwrites it",
    ),
    "listing with a checkout": (("--list", "--checkout", "."), "leave out --checkout"),
    "nothing to resume": (("mine.toml", "--resume", "new"), "new holds no sweep of these exp"),
    "all and a name": (("--all", "mine.toml"), "--all and NAME: "),
}


def test_bad_input_is_one_line_and_exit_2_and_leaves_no_file(folder: Path) -> None:
    (folder / "loop").symlink_to("loop")
    (folder / "old").mkdir()
    (folder / "old" / "reproduce.md").touch()
    before = files_in(folder)
    for case, (arguments, why) in REFUSED.items():
        for dry in ((), ("--dry-run",)):
            code, out, err = run(folder, *arguments, *dry)
            assert (code, out) == (2, ""), case
            assert len(err.splitlines()) == 1, case
            assert err.startswith("gpubench: "), case
            assert why in err, case
            assert files_in(folder) == before, case


def test_ctrl_c_before_the_first_point_leaves_the_files_of_an_earlier_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("mine.csv", "reproduce.csv", "reproduce.md")
    (folder / "old").mkdir()
    for name in names:
        (folder / "old" / name).write_text("precious")
    monkeypatch.setattr("stub.MAX_POINTS", 0)
    with nothing_measured():
        code, _, err = run(folder, "mine.toml", "--device", "cpu", "--dir", "old", "--force")
    assert (code, "--resume old continues" in err) == (130, True)
    assert {(folder / "old" / name).read_text() for name in names} == {"precious"}


def test_ctrl_c_keeps_what_was_measured_and_exits_130(folder: Path) -> None:
    text = MINE.replace('"cpu_naive", ', "").replace(", cpu_naive = 2.5", "")
    text = text.replace("sizes = [32]\ndtypes", f"sizes = {list(range(8, 200))}\ndtypes")
    (folder / "mine.toml").write_text(text)
    with nothing_measured():  # Ctrl-C after 40 points
        code, out, err = run(folder, "mine.toml", "--device", "cpu", "--dir", "out")
    assert (code, out.splitlines()[-1]) == (130, "out/reproduce.md")
    assert "interrupted: what was measured is kept" in err
    assert "--resume out continues" in err
    assert len(read(folder / "out" / "mine.csv")) == 40
    assert (folder / "out" / "mine.sweep-1.csv.partial").exists()
