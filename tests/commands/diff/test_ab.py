"""`gpubench ab` measures two sides in turns, each by its own version of gpubench."""

import math
import multiprocessing
import os
import select
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path

import pytest
from commandline import OWN, TIMEOUT_S, outcome
from diffs import rows

from gpubench.commands.diff.ab import build
from gpubench.commands.diff.sides import read_side
from gpubench.errors import UsageError
from gpubench.model import Device
from gpubench.results.row import Row, read, write
from gpubench.stats.looks import early_looks

ab = import_module("gpubench.commands.diff.ab")  # `diff.ab` is a function

Call = Callable[..., tuple[int, str, str]]

SCRIPT = """#!/bin/sh
echo "{name} $@" >> log.txt
for word in "$@"; do case "$word" in --output=*) cp {csv} "${{word#--output=}}";; esac; done
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUBENCH_STORE", str(tmp_path / "store"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def call() -> Call:
    return partial(outcome, "ab")


STATED = """from gpubench.model import Array, Operation

OPERATION = Operation(
    idea="twice X",
    extents=("ROWS",),
    inputs=(Array("X", "ROWS"),),
    output=Array("Y", "ROWS"),
    reference=lambda _, x: 2 * x,
    flops="ROWS",
)
"""


def side(name: str, content: list[Row] | str) -> str:
    """Return the path of an interpreter that logs its call and writes these rows, or fails."""
    if isinstance(content, str):
        text = f"#!/bin/sh\necho 'gpubench: {content}' >&2\nexit 2\n"
    else:
        write([replace(row, round_medians_us=(row.median_us,)) for row in content], Path(name))
        text = SCRIPT.format(name=name, csv=Path(name).absolute())
    path = Path(f"{name}.sh")
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def log() -> list[str]:
    return Path("log.txt").read_text().splitlines()


def test_either_side_may_be_first_in_a_pair(call: Call) -> None:
    code, out, _ = call(side("old", rows()), side("same", rows()), "--pairs", "3", "--sizes", "64")
    assert (code, out.splitlines()[0]) == (0, "no confirmed regression: 9 same of 9 points")
    sides = [line.split()[0] for line in log()]
    assert {*zip(sides[::2], sides[1::2], strict=True)} == {("old", "same"), ("same", "old")}
    (directory,) = Path("results").iterdir()
    assert sorted(path.name for path in directory.iterdir()) == [
        *(f"base-00{pair}.csv" for pair in (1, 2, 3)),
        *(f"new-00{pair}.csv" for pair in (1, 2, 3)),
    ]
    assert "sweep --sizes=64 --rounds=1 --output=" in log()[0]


def test_a_cpu_has_more_pairs_by_default(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    pair_counts = []

    def measure(_sides: object, _options: object, _directory: Path, pairs: int, *_: object) -> None:
        pair_counts.append(pairs)
        raise UsageError("enough")

    monkeypatch.setattr(ab, "measure_in_turns", measure)
    for device in ("cpu", "cuda:0"):
        call(side(f"old {device}", rows()), side(f"new {device}", rows()), "--device", device)
    assert pair_counts == [72, 26]


def test_the_scatter_of_earlier_results_chooses_the_number_of_pairs(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = Device(backend="cuda", name="NVIDIA H200")
    monkeypatch.setattr(ab, "first_device", lambda _: gpu)
    sides = side("old", rows()), side("slow", rows(own=1.1))
    code, _, err = call(*sides, "--device", "cuda", "--to-find", "5%")
    assert (code, "no result of NVIDIA H200" in err) == (2, True)
    Path("results").mkdir()
    write(rows(), Path("results/earlier.csv"))
    code, out, err = call(*sides, "--device", "cuda", "--to-find", "5%")
    assert (code, out.startswith("slower: ")) == (1, True)
    assert "as in results/earlier.csv: at all points of a kernel with 3 rounds per side" in err
    assert len(log()) == 6
    assert err.splitlines()[-1].endswith(" --threshold 2%")
    code, _, err = call(*sides, "--to-find", "5%", "--pairs", "3")
    assert (code, "--to-find chooses the number of pairs" in err) == (2, True)


def test_ctrl_c_names_the_command_that_compares_what_was_measured(call: Call) -> None:
    script = Path(side("new", rows()))
    limit = '[ "$(wc -l < log.txt)" -lt 4 ] || exit 130\nfor word'
    script.write_text(script.read_text().replace("for word", limit, 1))
    code, _, err = call(side("old", rows()), str(script))
    assert code == 130
    assert "stopped; to compare what was measured: gpubench diff --base results/" in err


def test_a_slower_side_is_found_and_the_last_line_is_about_the_point_that_changed_most(
    call: Call,
) -> None:
    sides = side("old", rows()), side("slow", rows(own=1.25))
    words = ("--pairs", "5", "--threshold", "5%", "--strict", "--results", "kept")
    code, out, err = call(*sides, *words, "--format", "junit", "--output", "ab.xml")
    assert (code, out.startswith("slower: ")) == (1, True)
    assert "<testsuite" in Path("ab.xml").read_text()
    *_, sentence = out.splitlines()
    assert sentence.startswith("`own` in slow.sh is 0.80")
    assert " times as fast as in old.sh at 64 (float32, cold cache)" in sentence
    (again,) = (line for line in err.splitlines() if line.startswith("again: "))
    assert again.endswith("kept/new-*.csv --threshold 5% --strict")


def test_too_few_pairs_are_followed_by_a_command_with_more(call: Call) -> None:
    out = call(side("old", rows()), side("slow", rows(own=1.02)), "--pairs", "2")[1]
    (advice,) = (line for line in out.splitlines() if line.startswith("to settle these points"))
    assert advice.startswith("to settle these points, measure more pairs: gpubench ab ")
    assert advice.endswith(" --pairs 72")


def test_a_killed_ab_takes_its_sweep_along(tmp_path: Path) -> None:
    os.mkfifo("alive")
    sweep = tmp_path / "sweep.sh"
    sweep.write_text("#!/bin/sh\nexec 3> alive; echo >&3; exec sleep 1000\n")
    sweep.chmod(0o755)
    measuring = multiprocessing.get_context("fork").Process(
        target=build("base", sweep).sweep, args=({}, tmp_path / "base-001.csv")
    )
    measuring.start()
    with Path("alive").open() as alive:
        assert alive.readline() == "\n"
        measuring.kill()
        assert select.select([alive], [], [], TIMEOUT_S)[0], "the sweep outlived ab"
        assert alive.read() == ""
    measuring.join()


def test_a_side_imports_nothing_from_the_current_directory(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    for name in ("gpubench", "platformdirs", "signal"):
        Path(f"{name}.py").write_text(f"open({str(marker)!r}, 'w')")
    with pytest.raises(UsageError, match="--sizes: 'x'"):
        build("new", Path(sys.executable)).sweep({"sizes": "x"}, tmp_path / "new-001.csv")
    assert not marker.exists()


def test_the_message_of_a_side_that_refuses_has_the_sides_name(call: Call) -> None:
    bad = side("bad", "--dtypes: unknown value")
    code, _, err = call(side("old", rows()), bad)
    assert (code, err.splitlines()[-1].startswith("gpubench: NEW (")) == (2, True)
    assert err.splitlines()[-1].endswith("): --dtypes: unknown value")


def test_directories_of_kernels_on_a_cpu_are_measured_without_a_start_for_each_sweep(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ab, "run_with_folder", None)
    for folder in ("base", "new"):
        Path(folder).mkdir()
        Path(folder, "mine.py").write_text(OWN)
    options = ("--variants", "mine", "--sizes", "32", "--device", "cpu", "--pairs", "2")
    assert call("base", "new", *options)[0] in {0, 1}  # two pairs on a loaded CPU may differ
    (directory,) = Path("results").iterdir()
    sweeps = [read(path) for path in sorted(directory.iterdir())]
    assert [{row.variant for row in sweep} for sweep in sweeps] == [{"mine"}] * 4
    assert {row.rounds for sweep in sweeps for row in sweep} == {1}
    pooled = read_side(sorted(directory.glob("new-*.csv"))).pooled
    assert all(point.on_cpu for point in pooled.values())

    Path("new/mine.py").write_text("VARIANT = 1 +")
    code, _, err = call("base", "new", *options)
    assert (code, err.splitlines()[-1].startswith("gpubench: NEW (")) == (2, True)
    assert err.splitlines()[-1].endswith("mine.py:1: SyntaxError: invalid syntax")


def test_the_kernels_of_gpubench_are_mentioned_only_if_they_are_measured(call: Call) -> None:
    for folder in ("base", "new"):
        for op in ("gemm", "stated"):
            Path(folder, op).mkdir(parents=True)
            Path(folder, op, "mine.py").write_text("VARIANT = 1 +")
        Path(folder, "stated", "operation.py").write_text(STATED)
    for op, mentions in (("gemm", True), ("stated", False)):
        code, _, err = call("base", "new", "--op", op, "--device", "cpu")
        assert (code, "gpubench's own kernels" in err) == (2, mentions), err


def test_a_side_whose_file_lacks_a_column_ends_ab_after_one_sweep(call: Call) -> None:
    old = side("old", rows())
    Path("old").write_text(Path("old").read_text().replace("launches", "former", 1))
    code, _, err = call(old, side("new", rows()), "--pairs", "3")
    assert (code, "column 'launches' is missing" in err.splitlines()[-1]) == (2, True)
    assert sum(line.startswith("old ") for line in log()) == 1


def test_what_cannot_be_used_is_refused_before_anything_is_measured(call: Call) -> None:
    old, new = side("old", rows()), side("new", rows())
    Path("full").mkdir()
    Path("full/a.csv").touch()
    for arguments, message in [
        ((old, "nowhere"), "NEW: 'nowhere' is neither a Python interpreter"),
        ((old, new, "--pairs", "1"), "--pairs: 1 is out of range"),
        ((old, new, "--pairs", "3", "--budget", "60"), "--pairs: --budget chooses the number"),
        ((old, new, "--results", "full"), "--results: full is not empty"),
        ((old, new, "--results", "full/a.csv"), "--results: cannot make the directory full/a.csv"),
        ((old, new, "--results", "r", "--pairs", "1"), "--pairs: 1 is out of range"),
        ((old, new, "--threshold", "5"), "'5' is not a percentage with its sign"),
    ]:
        code, _, err = call(*arguments)
        assert (code, err.count("\n")) == (2, 1)
        assert message in err
    assert not Path("log.txt").exists()


def test_sides_that_cannot_be_measured_leave_no_directory(call: Call) -> None:
    Path("kernels/gemm").mkdir(parents=True)
    Path("kernels/gemm/mine.py").write_text("VARIANT = (")
    code, _, err = call("kernels", "kernels", "--device", "cpu", "--results", "r")
    assert (code, "SyntaxError" in err) == (2, True), err
    assert not Path("r").exists()


Measured = Callable[..., tuple[int, float, list[int]]]


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Measured:
    """Return pairs, false discovery rate and looks of a comparison whose sweeps take 10 s each.

    A look is a comparison of the pairs so far. The sweeps measure nothing.
    """
    swept: list[object] = []
    monkeypatch.setattr(ab, "monotonic", lambda: 10.0 * len(swept))
    monkeypatch.setattr(ab.Build, "sweep", lambda *words: swept.append(words))
    monkeypatch.setattr(ab, "read_side", lambda _: None)
    sides = ab.Build(name="base", interpreter=""), ab.Build(name="new", interpreter="")

    def call(
        pairs: int, budget_s: float | None, decided_after: float
    ) -> tuple[int, float, list[int]]:
        looks: list[int] = []

        def decided(files: tuple[list[Path], list[Path]], _q: float) -> bool:
            looks.append(len(files[0]))
            return looks[-1] >= decided_after

        files, q = ab.measure_in_turns(sides, {}, tmp_path, pairs, budget_s, decided)
        return len(files[0]), q, looks

    return call


def test_a_budget_ends_before_the_pair_that_would_exceed_it_but_not_before_five(
    measured: Measured,
) -> None:
    for budget_s, pairs in ((10.0, 5), (150.0, 7)):
        assert measured(72, budget_s, math.inf) == (pairs, 0.01, [])


def test_fewer_pairs_are_measured_if_a_look_decides_and_all_looks_share_the_rate(
    measured: Measured,
) -> None:
    number, last, looks = measured(72, None, math.inf)
    assert (number, looks) == (72, [10, 14, 20, 27, 38, 54])
    number, early, looks = measured(72, None, 14)
    assert (number, looks) == (14, [10, 14])
    assert len(early_looks(72)) * early + last == pytest.approx(0.01)
    assert measured(10, None, 0) == (10, 0.01, [])


def test_a_slower_side_ends_the_comparison_at_the_first_look(call: Call) -> None:
    sides = side("old", rows()), side("slow", rows(own=1.25))
    code, out, err = call(*sides, "--pairs", "40", "--results", "kept")
    assert (code, "decided after 10 pairs" in err) == (1, True)
    assert len(list(Path("kept").glob("new-*.csv"))) == 10
    assert out.splitlines()[0].startswith("slower: 3 of 9 points")


def test_a_source_that_is_edited_meanwhile_ends_the_comparison(call: Call) -> None:
    edited = [replace(row, source_hash="a1") for row in rows()]
    new = Path(side("new", edited))
    write([replace(row, source_hash="b2") for row in edited], Path("later"))
    limit = '[ "$(wc -l < log.txt)" -lt 4 ] || cp later {csv}\nfor word'.format(
        csv=Path("new").absolute()
    )
    new.write_text(new.read_text().replace("for word", limit, 1))
    code, _, err = call(side("old", rows()), str(new), "--pairs", "20")
    assert code == 2
    assert "the source of cublas is not that of" in err.splitlines()[-1]
    assert err.splitlines()[-1].startswith("gpubench: NEW (")
    assert len(log()) <= 6


def test_a_side_is_an_interpreter_an_environment_or_kernels(tmp_path: Path) -> None:
    (tmp_path / "env" / "bin").mkdir(parents=True)
    (tmp_path / "env" / "bin" / "python").symlink_to(sys.executable)
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "mine.py").touch()
    assert build("base", Path(sys.executable)).interpreter == sys.executable
    assert build("base", Path("env")).interpreter == str(tmp_path / "env" / "bin" / "python")
    kernels = build("new", Path("own"))
    assert (kernels.interpreter, kernels.kernels) == (sys.executable, Path("own"))
    with pytest.raises(UsageError, match="BASE: 'store' is neither"):
        build("base", Path("store"))
