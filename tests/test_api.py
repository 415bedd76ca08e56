"""gpubench as a library."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from samples import SWEEP

import gpubench
from gpubench.errors import DeviceUnavailableError, UsageError
from gpubench.row import NAMES


@pytest.mark.slow
def test_a_sweep_returns_the_frame_of_its_file(tmp_path: Path) -> None:
    output = tmp_path / "sweep.csv"
    frame = gpubench.sweep(
        sizes=[64], tiles=[8, 16], variants=["cpu_tile"], device="cpu", rounds=2, output=output
    )
    assert list(frame.columns) == list(NAMES)
    assert frame["tile"].tolist() == ["8", "16"]
    assert set(frame["status"]) == {"ok"}
    assert (frame["median_us"] > 0).all()
    assert (frame["rounds"] == 2).all()
    pd.testing.assert_frame_equal(frame, gpubench.read_csv(output))


def test_a_sweep_without_output_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    frame = gpubench.sweep(
        sizes="32,8x4x2", variants="cpu_blas", device="cpu", rounds=1, cache="hot"
    )
    assert frame[["m", "n", "k"]].to_numpy().tolist() == [[32, 32, 32], [8, 4, 2]]
    assert list(tmp_path.iterdir()) == []


def test_what_the_command_refuses_the_library_refuses_too() -> None:
    with pytest.raises(UsageError, match="--sizes"):
        gpubench.sweep(sizes=[0], device="cpu")
    with pytest.raises(UsageError, match="did you mean 'cpu_tile'"):
        gpubench.sweep(sizes=[8], variants=["cpu_tyle"], device="cpu")
    with pytest.raises(DeviceUnavailableError):
        gpubench.sweep(sizes=[8], device="cuda")
    with pytest.raises(UsageError, match="cannot read"):
        gpubench.read_csv("nowhere.csv")


def test_an_unknown_attribute_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'sweeep'"):
        _ = gpubench.sweeep


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = "import sys, gpubench; print({'numpy', 'pandas', 'numba', 'cupy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


OWN = """
import numpy as np
from gpubench.model import CallVariant

VARIANT = CallVariant(
    idea="NumPy's product",
    runs_on="cpu",
    build=lambda tile, dtype: lambda a, b, c: np.matmul(a, b, out=c),
    baseline="",
)
"""


@pytest.mark.slow
def test_kernels_of_ones_own_are_swept_and_read_again_when_they_change(tmp_path: Path) -> None:
    """As in a notebook: edit, sweep, edit, sweep."""

    def status() -> tuple[str, str]:
        frame = gpubench.sweep(
            sizes=[8], variants="mine", device="cpu", kernels=tmp_path, rounds=1, cache="hot"
        )
        (row,) = frame.to_dict("records")
        return row["status"], row["source_hash"]

    path = tmp_path / "mine.py"
    path.write_text(OWN)
    right, before = status()
    path.write_text(OWN.replace("np.matmul(a, b,", "np.matmul(a, -b,"))
    wrong, after = status()
    assert (right, wrong) == ("ok", "wrong")
    assert before != after


def test_a_frame_is_drawn_as_its_file_would_be(tmp_path: Path) -> None:
    frames = (gpubench.read_csv(SWEEP), pd.read_csv(SWEEP))  # pandas makes floats of some columns
    chosen = [frame[(frame["m"] == 1024) & (frame["variant"] == "naive")] for frame in frames]
    drawn = [gpubench.plot(frame, kind="tiles") for frame in chosen]
    titles = [axes.get_title(loc="left") for figure in drawn for axes in figure.axes]
    assert titles == ["gemm 1024 float32 on NVIDIA H200, cold cache"] * 2
    lines = [[tuple(line.get_xdata()) for line in figure.axes[0].lines] for figure in drawn]
    assert lines[0] == lines[1]
    drawn[0].savefig(tmp_path / "figure.png")


def test_a_frame_that_is_no_sweep_is_not_drawn() -> None:
    with pytest.raises(UsageError, match="column 'op' is missing"):
        gpubench.plot(pd.DataFrame({"m": [1]}))
    with pytest.raises(UsageError, match="did you mean 'tiles'"):
        gpubench.plot(gpubench.read_csv(SWEEP), kind="tile")
