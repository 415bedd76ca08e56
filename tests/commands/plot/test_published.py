"""Published figures beside measured ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib.text import Text

from gpubench.commands.plot.published import Figure, draw, read_published
from gpubench.errors import UsageError
from gpubench.view.pictures import Theme

HEAD = "experiment,series,label,column,figure,published,published_device,measured,device"

TILES = """\
p100-tiles,register_tile,1,end-to-end,ms,3.28,Tesla P100,1.1,NVIDIA H200
p100-tiles,register_tile,1,kernel,ms,,,0.6,NVIDIA H200
p100-tiles,register_tile,1,rate,gflops,,,812,NVIDIA H200
p100-tiles,register_tile,8,end-to-end,ms,2.07,Tesla P100,0.7,NVIDIA H200
p100-tiles,register_tile,8,kernel,ms,,,0.2,NVIDIA H200
p100-tiles,register_tile,64,end-to-end,ms,83.6,Tesla P100,,
"""

GPUS = """\
lecture-sdk,cuBLAS,GeForce 9400M,measured,gflops,7.2791,GeForce 9400M,1100,NVIDIA H200
lecture-sdk,cuBLAS,Tesla K20c,measured,gflops,1171.83,Tesla K20c,5100,NVIDIA H200
"""


def figures(tmp_path: Path, lines: str) -> list[Figure]:
    path = tmp_path / "reproduce.csv"
    path.write_text(f"{HEAD}\n{lines}")
    found = read_published(path)
    assert found is not None
    return found


def test_tiles_are_curves_of_what_was_published_and_is_measured(tmp_path: Path) -> None:
    (axes,) = draw(figures(tmp_path, TILES), Theme.LIGHT).axes
    curves = {tuple(line.get_xdata()): list(line.get_ydata()) for line in axes.lines}
    assert curves[1, 8, 64] == [3.28, 2.07, 83.6]
    assert [list(line.get_ydata()) for line in axes.lines[1:]] == [[1.1, 0.7], [0.6, 0.2]]
    shown = {line for text in axes.findobj(Text) for line in text.get_text().splitlines()}
    assert {"published", "Tesla P100", "measured", "kernel", "NVIDIA H200"} <= shown
    assert "rate" not in shown  # another unit is another axis


def test_names_are_rows_of_dots(tmp_path: Path) -> None:
    (axes,) = draw(figures(tmp_path, GPUS), Theme.LIGHT).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["GeForce 9400M", "Tesla K20c"]
    assert [list(line.get_xdata()) for line in axes.lines] == [[7.2791, 1171.83], [1100, 5100]]


def test_a_series_is_a_panel(tmp_path: Path) -> None:
    for theme in Theme:
        drawn = draw(figures(tmp_path, TILES + GPUS), theme)
        titles = [axes.get_title(loc="left") for axes in drawn.axes]
        assert titles == ["p100-tiles: register_tile", "lecture-sdk: cuBLAS"]


def test_a_series_without_published_figures_is_left_out(tmp_path: Path) -> None:
    mine = "own,series,1,measured,ms,,,0.5,NVIDIA H200\n"
    assert len(draw(figures(tmp_path, TILES + mine), Theme.LIGHT).axes) == 1
    with pytest.raises(UsageError, match="no series has published figures"):
        draw(figures(tmp_path, mine), Theme.LIGHT)


def test_a_line_that_does_not_fit_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"reproduce\.csv, line 3: could not convert .*'fast'"):
        figures(tmp_path, TILES.splitlines()[0] + "\na,b,1,c,ms,fast,,,\n")


def test_a_line_that_ends_early_has_empty_fields(tmp_path: Path) -> None:
    found = figures(tmp_path, TILES + "p100-tiles")
    assert (found[-1].series, found[-1].label, found[-1].published) == ("", "", None)


def test_other_files_are_told_apart(tmp_path: Path) -> None:
    sweep = tmp_path / "sweep.csv"
    sweep.write_text("op,variant\n")
    assert read_published(sweep) is None
    sweep.write_text("")
    assert read_published(sweep) is None
    with pytest.raises(UsageError, match=r"cannot read .*: No such file"):
        read_published(tmp_path / "nowhere.csv")
    for content in (b"\xff\xfe\x00", f"{HEAD}\n{TILES * 99}".encode() + b"\xff"):
        sweep.write_bytes(content)
        with pytest.raises(UsageError, match="not a gpubench CSV"):
            read_published(sweep)


def test_what_disagreeing_rounds_gave_is_drawn_in_a_ring(tmp_path: Path) -> None:
    path = tmp_path / "reproduce.csv"
    line = "p100-tiles,register_tile,{},end-to-end,ms,2.07,Tesla P100,0.7,NVIDIA H200"
    path.write_text(f"{HEAD},unstable\n{line.format(8)},True\n{line.format(16)},False\n")
    (axes,) = draw(read_published(path) or [], Theme.LIGHT).axes
    rings = [line for line in axes.lines if line.get_fillstyle() == "none"]
    assert [list(ring.get_xdata()) for ring in rings] == [[8.0]]


def test_an_axis_of_tiles_is_named(tmp_path: Path) -> None:
    path = tmp_path / "reproduce.csv"
    line = "p100-tiles,register_tile,{0},end-to-end,ms,2.07,Tesla P100,0.7,NVIDIA H200,{0}"
    path.write_text("\n".join([f"{HEAD},tile", line.format(8), line.format(16)]) + "\n")
    (axes,) = draw(read_published(path) or [], Theme.LIGHT).axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("tile size", "time, ms")
