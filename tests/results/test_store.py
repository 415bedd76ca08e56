"""Results kept by name: the commands `sweep --save`, `diff --against` and `history`."""

import os
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from commandline import outcome as call
from diffs import rows
from stub import nothing_measured

from gpubench.errors import UsageError
from gpubench.results import store
from gpubench.results.row import Row, read, write

sweeps = count(1)


@pytest.fixture(autouse=True)
def own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GPUBENCH_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "store"


def built(commit: str, **factors: float) -> list[Row]:
    """Return rows of a build with this commit, with different times than other builds."""
    factor = 1 + 1e-9 * next(sweeps)
    return [
        replace(
            row,
            commit=commit,
            source_hash=commit,
            round_medians_us=tuple(time * factor for time in row.round_medians_us),
        )
        for row in rows(**factors)
    ]


def test_saving_twice_keeps_both(own_store: Path) -> None:
    first, second = store.save(rows(), "main"), store.save(rows(own=2.0), "main")
    assert first != second
    assert first.parent == own_store / "nvidia-h200" / "main"
    assert store.saved("main", "NVIDIA H200") == [first, second]
    assert store.saved("main", "Other GPU") == []
    assert read(second) == rows(own=2.0)


def test_an_invalid_name_is_refused_before_anything_is_measured() -> None:
    for name in ("../up", "a/b", "", "-x", "a" * 65):
        with pytest.raises(UsageError, match="is not a valid name"):
            store.save(rows(), name)
    code, _, err = call("sweep", "--save", "a/b", "--device", "cpu")
    assert (code, err.count("\n")) == (2, 1)
    assert "--save: 'a/b' is not a valid name" in err


def test_a_sweep_is_saved_under_its_name_and_compared_with_it() -> None:
    flags = ("--device", "cpu", "--variants", "cpu_blas", "--sizes", "32", "--rounds", "2")
    with nothing_measured():
        code, _, err = call("sweep", *flags, "--save", "main", "-o", "first.csv")
    assert code == 0
    (kept,) = store.saved("main")
    assert f"saved as main: {kept}" in err
    assert read(kept) == read(Path("first.csv"))
    code, _, err = call("diff", "--against", "main", "first.csv")  # compared with itself
    assert (code, "holds the same measurements" in err) == (2, True)
    write([replace(row, round_medians_us=(2, 2.1)) for row in read(kept)], Path("second.csv"))
    code, out, _ = call("diff", "--against", "main", "second.csv")
    assert (code, "1 ambiguous of 1 point" in out.splitlines()[0]) == (0, True)
    assert "a single sweep" not in out  # the headline has the cause


def test_a_store_that_cannot_be_written_costs_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("file").write_text("in the way")
    monkeypatch.setenv(store.VARIABLE, "file/store")
    flags = ("--device", "cpu", "--variants", "cpu_blas", "--sizes", "32", "--rounds", "1")
    with nothing_measured():
        code, _, err = call("sweep", *flags, "--save", "main", "-o", "first.csv")
    assert code == 2
    assert err.splitlines()[-1].endswith("; the rows are in first.csv")
    assert len(read(Path("first.csv"))) == 1


def test_against_a_name_is_against_the_newest_build_on_this_device() -> None:
    store.save(built("old", own=3.0), "main")
    newest = [store.save(built("new"), "main"), store.save(built("new"), "main")]
    store.save([replace(row, device="Other GPU") for row in built("other", own=9.0)], "main")
    assert store.newest_build(store.saved("main", "NVIDIA H200"), read) == (newest, [])
    write(built("mine", own=1.2), Path("mine.csv"))
    code, out, _ = call("diff", "--against", "main", "mine.csv")
    assert code == 1
    assert "slower: 3 of 9 points, by up to 20.0 %" in out


@pytest.mark.parametrize(
    "command", [("diff", "--against", "main", "mine.csv"), ("history", "main")]
)
def test_a_saved_file_that_cannot_be_read_does_not_block_the_others(command: tuple[str]) -> None:
    kept = store.save(built("new"), "main")
    (kept.parent / "29990101T000000.000000Z.csv").write_text("corrupt")
    os.mkfifo(kept.parent / "29990102T000000.000000Z.csv")
    write(built("mine"), Path("mine.csv"))
    code, _, err = call(*command)
    assert code == 0
    assert "skips" in err
    assert "29990101" in err
    kept.unlink()
    assert call(*command)[0] == 2


def test_a_saved_file_with_the_measurements_of_a_newer_one_is_passed_over() -> None:
    older = store.save(built("new"), "main")
    newest = store.save(read(older), "main")
    write(built("mine", own=1.2), Path("mine.csv"))
    code, out, err = call("diff", "--against", "main", "mine.csv")
    assert (code, "slower: 3 of 9 points" in out) == (1, True)
    assert f"skips {older}: holds the same measurements as {newest}" in err


def test_of_many_saved_sweeps_only_the_newest_are_pooled() -> None:
    kept = [store.save(built("new"), "main") for _ in range(store.MAX_SWEEPS + 5)]
    assert store.newest_build(kept, read) == (kept[5:], [])


def test_the_message_about_an_unknown_name_is_one_line_with_the_saved_names() -> None:
    write(rows(), Path("new.csv"))
    code, _, err = call("diff", "--against", "main", "new.csv")
    assert (code, err.count("\n")) == (2, 1)
    assert "nothing is saved as 'main' for NVIDIA H200" in err
    store.save(rows(), "nightly")
    assert "saved names: nightly" in call("diff", "--against", "main", "new.csv")[2]
    assert "nothing is saved as 'main' in" in call("history", "main")[2]
    both = call("diff", "--against", "nightly", "--base", "new.csv", "--new", "new.csv")
    assert (both[0], "already names the base side" in both[2]) == (2, True)


def test_history_shows_each_time_its_commit_and_the_change() -> None:
    for commit, factor in (("aaaa1111bbbb", 1.0), ("cccc2222dddd+", 1.5), ("eeee3333ffff", 0.75)):
        store.save(built(commit, own=factor), "main")
    code, out, _ = call("history", "main", "--only", "own,64")
    assert code == 0
    lines = [line.split() for line in out.splitlines() if ":" in line and "µs" in line]
    assert [line[2] for line in lines] == ["aaaa1111", "cccc2222+", "eeee3333"]
    assert [" ".join(line[-2:]) for line in lines[1:]] == ["+50.0 %", "-50.0 %"]
    assert max(map(len, out.splitlines())) <= 80


def test_history_orders_sizes_by_number() -> None:
    store.save([replace(row, m=n, n=n, k=n) for n in (1024, 64, 512) for row in built("a")], "main")
    out = call("history", "main", "--only", "own")[1]
    sizes = [line.split()[1] for line in out.splitlines() if line.startswith("gemm ")]
    assert list(dict.fromkeys(sizes)) == ["64", "512", "1024"]


def test_results_of_a_device_without_latin_letters_are_found(own_store: Path) -> None:
    kept = store.save([replace(row, device="龙芯") for row in rows()], "main")
    assert kept.parent == own_store / "unknown" / "main"
    assert store.saved("main", "龙芯") == [kept]
    assert store.names("龙芯") == ["main"]
