"""What a sweep would do, told without doing it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fakes import CPU, point

from gpubench.commands.sweep.dry_run import estimated_s, print_plan
from gpubench.errors import DeviceUnavailableError, UsageError
from gpubench.measure.runner import Runner
from gpubench.model import Device, Timing

H200 = Device(
    backend="cuda",
    name="NVIDIA H200",
    multiprocessors=132,
    l2_bytes=2**25,
    compute_capability=(9, 0),
    sm_clock_mhz=1980.0,
)


@pytest.fixture
def told(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Any:
    monkeypatch.chdir(tmp_path)

    def refuse(*_: object) -> None:
        raise AssertionError("something was run")

    monkeypatch.setattr(Runner, "__init__", refuse)
    monkeypatch.setattr("gpubench.backends.cpu.backend.CpuBackend.__init__", refuse)

    def tell(**options: str) -> str:
        print_plan({"device": "cpu"} | options, None)
        assert list(tmp_path.iterdir()) == []
        said = capsys.readouterr()
        assert said.err == ""
        return said.out

    return tell


def test_the_points_of_each_variant_are_counted_and_nothing_is_run_or_written(told: Any) -> None:
    out = told(sizes="64,128", tiles="8..10,16", variants="cpu_tile,cpu_blas", rounds="2")
    lines = [line.split() for line in out.splitlines()]
    assert "10 points in 2 rounds; nothing is run" in out
    assert ["cpu_tile", "8", "8..10,", "16"] in lines
    assert ["cpu_blas", "2"] in lines
    assert "estimated: 0:01 to " in out
    assert "skipped" not in out


def test_skips_are_told_once_with_their_reason(told: Any) -> None:
    out = told(sizes="64,128", tiles="256..300", variants="cpu_tile,cpu_blas", dtypes="int32")
    skips = [line for line in out.splitlines() if line.startswith("skipped: ")]
    tiled, typed = skips
    assert tiled.startswith("skipped: cpu_tile 257..300: takes edges 1 to 256: ")
    assert typed == "skipped: cpu_blas: has no int32, only float32, float64"


def test_the_file_is_named(told: Any) -> None:
    assert told(output="some/a.csv").splitlines()[-1] == "would write: some/a.csv"
    assert told().splitlines()[-1].startswith("would write: results/")


def test_what_the_sweep_refuses_is_refused(told: Any) -> None:
    with pytest.raises(UsageError, match="nothing to measure"):
        told(variants="cpu_blas", dtypes="int32")
    with pytest.raises(DeviceUnavailableError):
        told(device="cuda")


def test_the_estimate_is_by_the_policy() -> None:
    points = [point(size=(n, n, n)) for n in (8, 16)]
    timing = Timing(rounds=3, min_device_s=0.06, max_wall_s=1.0)
    assert estimated_s(points, CPU, timing) == (pytest.approx(0.12), pytest.approx(2.0))
    once = Timing(rounds=1, min_device_s=0.06, max_wall_s=1.0)
    assert estimated_s(points, CPU, once) == (pytest.approx(0.12), pytest.approx(2.0))


def test_a_budget_bounds_the_estimate_but_not_below_the_fewest_samples() -> None:
    points = [point(size=(n, n, n)) for n in range(1, 101)]
    free, tight = Timing(budget_s=90.0), Timing(budget_s=1.0)
    assert estimated_s(points, CPU, free) == (pytest.approx(5.0), 90.0)
    assert estimated_s(points, CPU, tight) == (pytest.approx(5.0), pytest.approx(5.0))


def test_large_problems_take_at_least_their_operations_at_peak() -> None:
    # 2·16384³ operations at 66.9 TFLOP/s take 0.13 s: a slow launch, one sample a round.
    least_s, max_s = estimated_s([point(size=(16384,) * 3)], H200, Timing())
    assert least_s == pytest.approx(5 * 2 * 16384**3 / 66.9e12, rel=0.01)
    assert max_s == pytest.approx(5 * 0.3)  # its 1.5 s in 5 rounds
