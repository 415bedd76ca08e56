"""`gpubench plot`, from flags to a file."""

from pathlib import Path
from typing import Any

import pytest
from samples import COMPARE, SWEEP

from gpubench.commands import plot as command
from gpubench.errors import UsageError
from gpubench.view.pictures.style import provenance


def plot(*files: Path, **flags: Any) -> None:
    command.plot([*files], **flags)


@pytest.mark.slow
def test_a_picture_is_named_after_file_and_kind_and_says_what_it_is_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    plot(SWEEP, only="1024")
    assert capsys.readouterr().out == "sweep-tiles.svg\n"
    drawn = Path("sweep-tiles.svg").read_text()
    assert provenance("tiles", [SWEEP]) in drawn
    assert "gemm 1024 float32" in drawn
    assert "gemm 2048 float32" not in drawn


@pytest.mark.slow
def test_only_and_exclude_choose_rows(tmp_path: Path) -> None:
    drawn = tmp_path / "a.svg"
    plot(COMPARE, only="1024,fp64", exclude="naive", output=drawn)
    text = drawn.read_text()
    assert "float64" in text
    assert "float32" not in text
    assert ">naive<" not in text
    with pytest.raises(UsageError, match="unknown size or tile '1000'"):
        plot(COMPARE, only="1000", output=drawn)


def test_provenance_changes_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "sweep.csv"
    path.write_text("one")
    before = provenance("tiles", [path])
    path.write_text("other")
    assert before.startswith("tiles of sweep.csv (sha256 ")
    assert provenance("tiles", [path]) != before
