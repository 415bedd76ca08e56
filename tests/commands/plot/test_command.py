"""`gpubench plot` and `gpubench report`, from flags to a file."""

import os
from pathlib import Path

import pytest
from commandline import call
from samples import SWEEP, curve

from gpubench.results.row import write
from gpubench.view.pictures.style import provenance


@pytest.mark.slow
def test_a_picture_shows_the_chosen_rows_and_names_its_files(tmp_path: Path) -> None:
    done = call(tmp_path, "plot", str(SWEEP), "--only", "1024", "--exclude", "naive")
    assert (done.code, done.out, done.files) == (0, "sweep-tiles.svg\n", ["sweep-tiles.svg"])
    drawn = (tmp_path / "sweep-tiles.svg").read_text()
    assert provenance("tiles", [SWEEP]) in drawn
    assert "gemm 1024 float32" in drawn
    assert "gemm 2048 float32" not in drawn
    assert ">naive<" not in drawn


def test_provenance_changes_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "sweep.csv"
    path.write_text("one")
    before = provenance("tiles", [path])
    path.write_text("other")
    assert before.startswith("tiles of sweep.csv (sha256 ")
    assert provenance("tiles", [path]) != before


def test_plot_and_report_write_a_file_and_say_its_name_alone(tmp_path: Path) -> None:
    write(curve("naive", (3, 2, 1)), tmp_path / "a.csv")
    done = call(tmp_path, "plot", "a.csv", "--kind", "tiles", "-o", "ladder.png")
    assert (done.code, done.out) == (0, "ladder.png\n"), done.err
    assert (tmp_path / "ladder.png").read_bytes().startswith(b"\x89PNG")
    done = call(tmp_path, "report", "a.csv", "-o", "page.html")
    assert (done.code, done.out) == (0, "page.html\n"), done.err
    assert (tmp_path / "page.html").read_text().endswith("</html>\n")


def test_files_whose_names_are_not_utf_8_are_drawn_and_shown(tmp_path: Path) -> None:
    name = os.fsdecode(b"a\xff.csv")
    for path in (name, "b.csv"):
        write(curve("naive", (3, 2, 1)), tmp_path / path)
    for arguments in (
        ("report", name, "b.csv", "-o", "page.html"),
        ("plot", name, "b.csv", "-o", "a.svg"),
        ("show", name, "b.csv", "-o", "a.md"),
    ):
        done = call(tmp_path, *arguments)
        assert done.code == 0, done.err
        assert "a?" in (tmp_path / arguments[-1]).read_text()


def test_files_without_rows_are_named(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv"):
        write([], tmp_path / name)
    for command, message in (
        (("plot",), "nothing to draw: no row with a time is in a.csv, b.csv"),
        (("report", "-o", "page.html"), "nothing to report: no row is in a.csv, b.csv"),
    ):
        done = call(tmp_path, *command, "a.csv", "b.csv")
        assert (done.code, done.err) == (2, f"gpubench: {message}\n")


def test_unusable_input_is_one_line_and_leaves_no_file(tmp_path: Path) -> None:
    for arguments, message in (
        (("plot", "nowhere.csv"), "cannot read nowhere.csv: No such file or directory"),
        (("report", "nowhere.csv"), "cannot read nowhere.csv: No such file or directory"),
        (("plot", str(SWEEP), "--bandwidth", "0"), "--bandwidth: '0' is below the minimum"),
        (("report", str(SWEEP), "--bandwidth", "inf"), "--bandwidth: inf is not a rate"),
        (("plot",), "Missing argument 'CSV'; usage: gpubench plot [OPTIONS] {CSV}..."),
    ):
        done = call(tmp_path, *arguments)
        assert (done.code, done.out, done.files) == (2, "", [])
        assert message in done.err
        assert len(done.err.splitlines()) == 1
