"""Points of result files, measured again."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import pytest
from fakes import FakeBackend, measured, point, variant

from gpubench.api import Silent
from gpubench.commands.diff import again
from gpubench.commands.diff.again import covering, measure_again
from gpubench.errors import UsageError
from gpubench.measure.executor import InProcess
from gpubench.model import Cache, Timer, Variant, edges
from gpubench.plan import sweep as plan
from gpubench.row import Row

TILED = variant(name="tiled", tiles=edges(1, 32, because="of a test"))
OTHER = variant(name="other")


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> FakeBackend:
    """A fake machine with two fake variants."""
    fake = FakeBackend(1e4)

    def choose(_op: str, _backend: str, names: tuple[str, ...], *_: object) -> tuple[Variant, ...]:
        return tuple(one for one in (TILED, OTHER) if one.name in names)

    monkeypatch.setattr(again, "Worker", lambda *_: nullcontext(InProcess(fake)))
    monkeypatch.setattr(plan, "choose", choose)
    return fake


def tiled(size: int, tile: str) -> Row:
    return replace(measured(9.0, point(TILED, size=(size, size, size))), tile=tile)


def test_just_the_points_asked_for_are_measured_and_in_rounds(backend: FakeBackend) -> None:
    wanted = [tiled(16, "8"), tiled(32, "4"), measured(9.0, point(OTHER, size=(16, 16, 16)))]
    fresh = measure_again(wanted, 5, Silent())
    assert {
        (one.point.variant.name, one.rows) for one in backend.events_of("sample") if one.point
    } == {
        ("tiled", 16),
        ("tiled", 32),
        ("other", 16),
    }
    assert {one.key for one in fresh} == {one.key for one in wanted}
    assert [one.rounds for one in fresh] == [5, 5, 5]
    assert {one.median_us for one in fresh} == {1e4}


def test_another_machine_is_refused(backend: FakeBackend) -> None:
    elsewhere = replace(tiled(16, "8"), device="NVIDIA H200")
    with pytest.raises(UsageError, match=r"NVIDIA H200.*Fake CPU"):
        measure_again([elsewhere], 5, Silent())
    assert not backend.events


def test_variants_of_one_name_are_told_apart_by_their_operation() -> None:
    hashes = again.source_hashes()
    assert hashes["gemm", "cpu_blas"] != hashes["gemv", "cpu_blas"]


def test_the_options_of_a_covering_sweep_are_those_of_the_command_line() -> None:
    hot = replace(tiled(32, "4"), cache=Cache.HOT, dtype="float64", timer=Timer.CUPTI)
    assert covering([tiled(16, "8"), hot]) == {
        "sizes": "16,32",
        "tiles": "8,4",
        "variants": "tiled",
        "dtypes": "float32,float64",
        "cache": "both",
        "timer": "cupti",
        "device": "cpu",
    }
