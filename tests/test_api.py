"""gpubench is used as a library."""

import pydoc
from pathlib import Path

import pandas as pd
import pytest
from commandline import OWN
from diffs import rows
from samples import SWEEP
from stub import nothing_measured

import gpubench
from gpubench.errors import DeviceUnavailableError, UsageError
from gpubench.results.row import NAMES, write


def test_a_sweep_returns_the_frame_of_its_file(tmp_path: Path) -> None:
    output = tmp_path / "sweep.csv"
    with nothing_measured():
        frame = gpubench.sweep(
            sizes=[64], tiles=[7, 8], variants=["cpu_tile"], device="cpu", rounds=1, output=output
        )
    assert list(frame.columns) == list(NAMES)
    assert frame["tile"].tolist() == ["7", "8"]
    assert set(frame["status"]) == {"ok"}
    assert (frame["rounds"] == 1).all()
    pd.testing.assert_frame_equal(frame, gpubench.read_csv(output))


def test_what_the_command_refuses_the_library_refuses_too() -> None:
    with pytest.raises(UsageError, match="--sizes"):
        gpubench.sweep(sizes=[0], device="cpu")
    with nothing_measured(), pytest.raises(UsageError, match="did you mean 'cpu_tile'"):
        gpubench.sweep(sizes=[8], variants=["cpu_tyle"], device="cpu")
    with pytest.raises(DeviceUnavailableError):
        gpubench.sweep(sizes=[8], device="cuda")
    with pytest.raises(UsageError, match="--samples: add --output"):
        gpubench.sweep(sizes=[8], device="cpu", samples="a.jsonl")
    with pytest.raises(UsageError, match="cannot read"):
        gpubench.read_csv("nowhere.csv")


def test_kernels_of_ones_own_are_swept_and_read_again_when_they_change(tmp_path: Path) -> None:
    """In a notebook, a user edits a kernel between two sweeps."""
    hashes = set()
    for text in (OWN, OWN.replace("np.matmul(a, b,", "np.matmul(a, -b,")):
        (tmp_path / "mine.py").write_text(text)
        with nothing_measured():
            frame = gpubench.sweep(sizes=[8], variants="mine", device="cpu", kernels=tmp_path)
        hashes.add(frame["source_hash"][0])
    assert len(hashes) == 2


def test_a_frame_is_drawn_as_its_file_would_be(tmp_path: Path) -> None:
    frames = (gpubench.read_csv(SWEEP), pd.read_csv(SWEEP))  # pandas makes floats of some columns
    chosen = [frame[(frame.m == 1024) & (frame.variant == "naive")] for frame in frames]
    drawn = [gpubench.plot(frame, kind="tiles") for frame in chosen]
    titles = [axes.get_title(loc="left") for figure in drawn for axes in figure.axes]
    assert titles == ["gemm 1024 float32 on NVIDIA H200, cold cache"] * 2
    lines = [[tuple(line.get_xdata()) for line in figure.axes[0].lines] for figure in drawn]
    assert lines[0] == lines[1]
    drawn[0].savefig(tmp_path / "figure.png")


def test_a_frame_that_is_no_sweep_is_not_drawn() -> None:
    with pytest.raises(UsageError, match="column 'op' is missing"):
        gpubench.plot(pd.DataFrame({"m": [1]}))
    with pytest.raises(UsageError, match="a frame is needed, as read_csv returns it, not str"):
        gpubench.plot("sweep.csv")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="did you mean 'tiles'"):
        gpubench.plot(gpubench.read_csv(SWEEP), kind="tile")


def test_diff_takes_frames_and_files_alike(tmp_path: Path) -> None:
    for name, factor in (("base", 1.0), ("new", 1.2)):
        write(rows(own=factor), tmp_path / f"{name}.csv")
    base, new = tmp_path / "base.csv", tmp_path / "new.csv"
    of_files = gpubench.diff(base, new)
    assert len(of_files) == 9
    assert set(of_files.query("verdict == 'slower'")["variant"]) == {"own"}
    frame = gpubench.read_csv(new)
    pd.testing.assert_frame_equal(gpubench.diff(gpubench.read_csv(base), frame), of_files)
    pd.testing.assert_frame_equal(gpubench.diff(base, [frame]), of_files)
    write(rows(own=1.2, other=1.0001, cublas=1.0001), tmp_path / "again.csv")
    pooled = gpubench.diff([base], [frame, tmp_path / "again.csv"])
    assert pooled.query("variant == 'own'")["ratio"].tolist() == pytest.approx([1.2] * 3, rel=1e-3)
    with pytest.raises(UsageError, match="base 1 and new 1 have no point in common"):
        gpubench.diff(frame[frame.variant == "own"], frame[frame.variant != "own"])
    with pytest.raises(UsageError, match="new 1: holds the same measurements as new 2"):
        gpubench.diff(base, [frame, frame])
    with pytest.raises(UsageError, match="base 1: has no points"):
        gpubench.diff(frame[:0], frame)


def test_help_shows_the_defaults_of_a_sweep_and_of_tune() -> None:
    for name in set(gpubench.__all__) - {"__version__"}:
        assert "OptionInfo" not in pydoc.render_doc(getattr(gpubench, name))
    for function in (gpubench.sweep, gpubench.tune):
        text = pydoc.render_doc(function)
        for default in ("precision='0.5%'", "rounds=5", "dtypes='float32'", "op='gemm'"):
            assert default in text
