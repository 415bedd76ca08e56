"""A dry run prints what a sweep would do."""

from pathlib import Path
from typing import Any

import pytest

from gpubench.engine.measure.runner import Runner
from gpubench.engine.prepare import prepare_dry
from gpubench.options import read_sweep
from gpubench.view.job import print_plan


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
        print_plan(prepare_dry(read_sweep({"device": "cpu"} | options)), "gemm.csv")
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
    assert "5 kernels to compile, about 0:0" in out
    assert "; at least 0:0" in out
    assert "skipped" not in out


def test_skips_are_told_once_with_their_reason(told: Any) -> None:
    out = told(sizes="64,128", tiles="256..300", variants="cpu_tile,cpu_blas", dtypes="int32")
    skips = [line for line in out.splitlines() if line.startswith("skipped: ")]
    tiled, typed = skips
    assert tiled.startswith("skipped: cpu_tile 257..300: takes edges 1 to 256: ")
    assert typed == "skipped: cpu_blas: has no int32, only float32, float64"


def test_a_problem_that_needs_more_memory_than_the_machine_has_is_no_point(told: Any) -> None:
    out = told(sizes="64,4000000", variants="cpu_blas")
    assert "1 point in 5 rounds; nothing is run" in out
    assert "skipped: cpu_blas: 4000000 needs 192,000 GB of memory, and this machine has " in out


def test_the_last_line_has_the_file_that_would_be_written(told: Any) -> None:
    assert told(output="some/a.csv").splitlines()[-1] == "would write: some/a.csv"
    assert told().splitlines()[-1].startswith("would write: results/")
