"""Writing pictures."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from samples import curve, source

from gpubench.errors import UsageError
from gpubench.view.pictures.files import check, save, svg
from gpubench.view.pictures.kinds import draw

BEGINNINGS = {"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF"}


@pytest.mark.parametrize("kind", BEGINNINGS)
def test_the_name_says_the_format(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "new" / f"picture.{kind}"
    save(draw(source(*curve("naive", (8, 4, 6)))), path)
    assert path.read_bytes().startswith(BEGINNINGS[kind])
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("kind", BEGINNINGS)
def test_the_same_rows_give_the_same_bytes(kind: str, tmp_path: Path) -> None:
    of = source(*curve("naive", (8, 4, 6)), *curve("shared_tile", (9, 3, 2)))
    paths = [tmp_path / f"{number}.{kind}" for number in (1, 2)]
    for path in paths:
        save(draw(of), path)
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_an_svg_is_text_that_a_reader_can_search() -> None:
    drawn = svg(draw(source(*curve("naive", (800.12345, 400.12345, 600)))), "made by <a test>")
    tree = ET.fromstring(drawn)  # noqa: S314 - drawn by us
    texts = {
        "".join(element.itertext()) for element in tree.iter("{http://www.w3.org/2000/svg}text")
    }
    assert {"naive", "best 2: 0.4001 ms"} <= texts  # coordinates are shortened, words are not
    assert "made by &lt;a test&gt;" in drawn
    assert "<dc:date>" not in drawn


def test_a_picture_for_both_pages_has_no_page_of_its_own() -> None:
    of = source(*curve("naive", (8, 4, 6)))
    assert "#ffffff" not in svg(draw(of, theme="both"))
    assert "#ffffff" in svg(draw(of, theme="light"))


def test_what_is_there_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "picture.svg"
    path.write_text("mine")
    with pytest.raises(UsageError, match="exists; --force overwrites it"):
        check(path, force=False)
    check(path, force=True)


@pytest.mark.parametrize("name", ["picture.gif", "picture", "picture.svg.gz"])
def test_a_format_that_is_not_written_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"ends in none of \.svg, \.png, \.pdf"):
        check(tmp_path / name, force=False)


def test_a_folder_is_no_picture(tmp_path: Path) -> None:
    (tmp_path / "folder.svg").mkdir()
    with pytest.raises(UsageError, match="is a folder"):
        check(tmp_path / "folder.svg", force=True)


def test_a_picture_that_cannot_be_written_is_an_error_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="--output: cannot write"):
        save(draw(source(*curve("naive", (8, 4, 6)))), tmp_path / "file" / "picture.svg")
