"""Rows of slow loops in the user's cache."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fakes import CPU, failed, measured, point, variant

from gpubench.commands.reproduce.run import LoopCache
from gpubench.model import Status

LOOP = variant(name="cpu_naive")
AT = point(LOOP)


@pytest.fixture
def cache(tmp_path: Path) -> LoopCache:
    return LoopCache(folder=tmp_path / "cache" / "loops", numba="1.0")


def test_a_row_that_was_kept_is_found_again(cache: LoopCache) -> None:
    assert cache.recall(AT, CPU) is None
    kept = measured(31e6, AT)
    cache.remember(kept, CPU)
    assert cache.recall(AT, CPU) == kept


def test_it_is_not_taken_for_that_of_another_point(cache: LoopCache) -> None:
    cache.remember(measured(31e6, AT), CPU)
    for other in (
        point(LOOP, size=(64, 48, 33)),
        point(LOOP, dtype="float64"),
        point(variant(name="cpu_other")),
        point(variant(name="cpu_naive", path=Path(__file__))),
    ):
        assert cache.recall(other, CPU) is None


def test_nor_for_that_of_another_cpu_or_of_fewer_cores(cache: LoopCache) -> None:
    cache.remember(measured(31e6, AT), CPU)
    assert cache.recall(AT, replace(CPU, name="Other CPU")) is None
    assert cache.recall(AT, replace(CPU, multiprocessors=2)) is None


def test_nor_for_what_another_numba_compiled(cache: LoopCache) -> None:
    cache.remember(measured(31e6, AT), CPU)
    assert replace(cache, numba="0.0").recall(AT, CPU) is None


def test_what_went_wrong_is_not_kept(cache: LoopCache) -> None:
    cache.remember(failed(Status.WRONG, "off by one", AT), CPU)
    assert not cache.folder.exists()


def test_a_damaged_file_is_measured_again(cache: LoopCache) -> None:
    cache.remember(measured(31e6, AT), CPU)
    (path,) = cache.folder.iterdir()
    for text in ("", "nonsense", "op,variant\ngemm,naive\n", "\0"):
        path.write_text(text)
        assert cache.recall(AT, CPU) is None
        kept = measured(30e6, AT)
        cache.remember(kept, CPU)
        assert cache.recall(AT, CPU) == kept


def test_a_cache_that_cannot_be_written_is_not_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = LoopCache(folder=tmp_path / "file" / "loops", numba="1.0")
    cache.remember(measured(31e6, AT), CPU)
    assert cache.recall(AT, CPU) is None


def test_the_cache_is_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert LoopCache().folder == tmp_path / "gpubench" / "loops"
