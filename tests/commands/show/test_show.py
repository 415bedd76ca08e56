"""`gpubench show` prints the tables of result files."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from commandline import outcome
from fakes import failed, measured, point, variant
from samples import printed

from gpubench.commands import show as command
from gpubench.commands.show.view import result_tables
from gpubench.errors import UsageError
from gpubench.model import Config, Status, edges
from gpubench.results.row import Row, read, write

TILED = variant(name="tiled", tiles=edges(1, 64, because="of a test"))

Show = Callable[..., str]


def row_of(tile: int, median_us: float) -> Row:
    return measured(median_us, point(TILED, tile=Config.parse(str(tile))))


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Show:
    monkeypatch.setenv("COLUMNS", "80")

    def show(*files: Path, **options: Any) -> str:
        command.show([*files], **options)
        return capsys.readouterr().out

    return show


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "base.csv"
    write([row_of(8, 20.0), row_of(16, 10.0), row_of(32, 30.0)], path)
    return path


def test_a_file_is_shown_as_after_its_sweep(shown: Show, file: Path) -> None:
    lines = shown(file).splitlines()
    assert "gemm 64x48x32 float32 on Fake CPU, cold cache" in lines
    assert ["16", "10.00", "µs", "*"] in [line.split() for line in lines]
    assert max(map(len, lines)) <= 80


def test_points_are_listed_in_the_order_asked_for(shown: Show, file: Path) -> None:
    def tiles(**how: Any) -> list[str]:
        return [line.split()[1] for line in shown(file, **how).splitlines() if "µs" in line]

    assert tiles(sort="time") == ["16", "8", "32"]
    write([replace(row, median_us=None) if row.tile == "8" else row for row in read(file)], file)
    assert tiles(sort="time", top=2) == ["16", "32"]
    assert tiles(sort="name", top=2) == ["16", "32"]


def test_files_stand_side_by_side_with_their_ratio_if_their_rounds_agree(
    shown: Show, file: Path, tmp_path: Path
) -> None:
    alone = replace(row_of(64, 5.0), device="Other CPU")
    loud = replace(row_of(16, 30.0), round_medians_us=(20, 30, 40))
    sustained = replace(row_of(8, 24.0), state="sustained")  # another state is another point
    write([row_of(8, 30.0), loud, sustained, alone], tmp_path / "new.csv")
    text = shown(file, tmp_path / "new.csv")
    lines = [line.split() for line in text.splitlines()]
    assert ["variant", "tile", "base", "new", "new", "÷", "base"] in lines
    assert ["tiled", "8", "20.00", "µs", "30.00", "µs", "1.500"] in lines
    assert ["tiled", "16", "10.00", "µs", "30.00", "µs", "!"] in lines
    assert ["tiled", "64", "5.000", "µs"] in lines
    assert "24.00 µs" in text
    assert "! rounds differ" in text


def test_files_side_by_side_with_one_name_are_named_by_their_paths(
    file: Path,
) -> None:
    rows = read(file)
    text = printed(*result_tables([Path("old/a.csv"), Path("new/a.csv")], [rows, rows], None, None))
    assert "old/a.csv" in text
    assert "new/a.csv ÷ old/a.csv" in text


def test_precisions_of_one_type_have_different_headings_side_by_side() -> None:
    rows = [row_of(8, 10.0), replace(row_of(8, 5.0), compute_mode="tf32")]
    text = printed(*result_tables([Path("a.csv"), Path("b.csv")], [rows, rows], None, None))
    assert "gemm 64x48x32 float32, cold cache\n" in text
    assert "gemm 64x48x32 float32 as tf32, cold cache\n" in text


def test_failures_are_named_side_by_side_and_in_lists() -> None:
    wrong = failed(Status.WRONG, "relative error 1", point(TILED, tile=Config.parse("8")))
    paths, rows = [Path("a.csv"), Path("b.csv")], [wrong, row_of(16, 10.0)]
    for sides, sort in (([rows, rows], None), ([rows, []], "time"), ([[wrong], []], "time")):
        text = printed(*result_tables(paths, sides, sort, None))
        assert "wrong: tiled 8: relative error 1" in text


def test_files_without_a_point_in_common_are_shown_as_one_sweep(
    shown: Show, file: Path, tmp_path: Path
) -> None:
    rest = tmp_path / "rest.csv"
    write([row_of(64, 5.0)], rest)
    assert ["64", "5.000", "µs", "*"] in [line.split() for line in shown(file, rest).splitlines()]


def test_a_file_without_rows_is_refused(shown: Show, tmp_path: Path) -> None:
    empty = tmp_path / "empty.csv"
    write([], empty)
    with pytest.raises(UsageError, match="the file has no rows"):
        shown(empty)


def test_baselines_that_contradict_each_other_are_remarked(shown: Show, tmp_path: Path) -> None:
    serial = replace(row_of(8, 20.0), variant="cpu_blas", tile="")
    write(
        [serial, replace(serial, variant="cpu_blas_parallel", median_us=40.0)], tmp_path / "c.csv"
    )
    text = " ".join(shown(tmp_path / "c.csv").split())
    assert "takes 2 times as long as cpu_blas on one thread" in text


def test_points_that_are_too_many_for_a_table_are_not_listed(
    shown: Show, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpubench.view.row_tables.MAX_POINTS", 2)
    monkeypatch.setattr("gpubench.commands.show.view.MAX_POINTS", 2)
    for text in (shown(file), shown(file, sort="time"), shown(file, file)):
        assert "10.00 µs" not in text
        assert "too many for a table" in text
    assert "30.00 µs" in shown(file, sort="rate", top=2) or "20.00 µs" in shown(file, top=2)


def test_markdown_shows_names_as_text(shown: Show, tmp_path: Path) -> None:
    name = "![x](http://a/b) <img src=x> @someone #12"
    write([replace(row_of(8, 20.0), device=name, variant=name)], tmp_path / "bad.csv")
    text = shown(tmp_path / "bad.csv", form=command.Format.MARKDOWN)
    assert "<img" not in text
    assert "![" not in text
    assert "@someone" not in text
    assert "#12" not in text


def test_too_little_memory_ends_in_one_line(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("gpubench.commands.show.view.tables", full)
    code, _, err = outcome("show", str(file))
    assert (code, err.count("\n"), "memory" in err) == (2, 1, True)
