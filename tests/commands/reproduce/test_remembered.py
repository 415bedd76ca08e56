"""Rows of slow loops in the user's cache."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fakes import CPU, failed, measured, point, variant

from gpubench.commands.reproduce import remembered
from gpubench.commands.reproduce.remembered import recall, remember
from gpubench.model import Status

LOOP = variant(name="cpu_naive")
AT = point(LOOP)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache" / "loops"
    monkeypatch.setattr(remembered, "folder", lambda: folder)
    return folder


def test_a_row_that_was_kept_is_found_again() -> None:
    assert recall(AT, CPU) is None
    kept = measured(31e6, AT)
    remember(kept, CPU)
    assert recall(AT, CPU) == kept


@pytest.mark.parametrize(
    "other",
    [
        point(LOOP, size=(64, 48, 33)),
        point(LOOP, dtype="float64"),
        point(variant(name="cpu_other")),
        point(variant(name="cpu_naive", path=Path(__file__))),
    ],
    ids=["size", "dtype", "variant", "source"],
)
def test_it_is_not_taken_for_another(other: object) -> None:
    remember(measured(31e6, AT), CPU)
    assert recall(other, CPU) is None  # type: ignore[arg-type]


def test_nor_for_that_of_another_cpu_or_of_fewer_cores() -> None:
    remember(measured(31e6, AT), CPU)
    assert recall(AT, replace(CPU, name="Other CPU")) is None
    assert recall(AT, replace(CPU, multiprocessors=2)) is None


def test_nor_for_what_another_numba_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    remember(measured(31e6, AT), CPU)
    monkeypatch.setattr(remembered, "version", lambda _package: "0.0")
    assert recall(AT, CPU) is None


def test_what_went_wrong_is_not_kept(own_cache: Path) -> None:
    remember(failed(Status.WRONG, "off by one", AT), CPU)
    assert not own_cache.exists()


@pytest.mark.parametrize("text", ["", "nonsense", "op,variant\ngemm,naive\n", "\0"])
def test_a_damaged_file_is_measured_again(own_cache: Path, text: str) -> None:
    remember(measured(31e6, AT), CPU)
    (path,) = own_cache.iterdir()
    path.write_text(text)
    assert recall(AT, CPU) is None
    kept = measured(30e6, AT)
    remember(kept, CPU)
    assert recall(AT, CPU) == kept


def test_a_cache_that_cannot_be_written_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(remembered, "folder", lambda: tmp_path / "file" / "loops")
    remember(measured(31e6, AT), CPU)
    assert recall(AT, CPU) is None


def test_the_cache_is_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert remembered.folder() == tmp_path / "gpubench" / "loops"
