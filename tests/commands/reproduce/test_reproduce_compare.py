"""Published figures beside rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fakes import failed, measured, point, variant

from gpubench.commands.reproduce.compare import Compared, Reproduction
from gpubench.commands.reproduce.experiment import read_experiment
from gpubench.commands.reproduce.view import grids
from gpubench.model import Config, Scope, Status
from gpubench.results.row import Row

TEXT = """
title = "Tiles"
source = "here"

[[device]]
name = "Old"
peak_float32_tflops = 2

[[sweep]]
device = "cpu"
variants = ["cpu_tile"]
sizes = [64]
tiles = [4, 8, 16]
scope = "both"

[[sweep]]
device = "cpu"
variants = ["cpu_naive"]
sizes = [64]

[[series]]
name = "times"
figure = "ms"
device = "Old"
axis = "tile"
where = { variant = "cpu_tile", scope = "end-to-end" }
published = { 4 = 2.0, 8 = 1.0 }
also = [16]
rules = [{ rule = "minimum-at", at = 8 }]

[[series.beside]]
name = "kernel"
where = { scope = "kernel" }

[[series.beside]]
name = "× loop"
figure = "speedup"
where = { scope = "kernel" }
over = { variant = "cpu_naive", tile = "" }

[[series]]
name = "rates"
figure = "gflops"
device = "Old"
axis = "variant"
where = { tile = "best" }
published = { cpu_tile = 100, cpu_naive = 50 }
rules = [{ rule = "maximum-at", at = "cpu_tile" }]
"""

TILE, LOOP = variant(name="cpu_tile"), variant(name="cpu_naive")


def tiled(edge: int, time_us: float, scope: Scope = Scope.KERNEL) -> Row:
    of = point(TILE, size=(64, 64, 64), tile=Config.parse(str(edge)), scope=scope)
    return measured(time_us, of)


ROWS = [
    *(tiled(edge, us, Scope.END_TO_END) for edge, us in ((4, 1000), (8, 250), (16, 100))),
    *(tiled(edge, us) for edge, us in ((4, 800), (8, 200), (16, 80))),
    measured(1600, point(LOOP, size=(64, 64, 64))),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("experiments")


def compared(folder: Path, rows: list[Row]) -> list[Compared]:
    (folder / "mine.toml").write_text(TEXT)
    experiment = read_experiment(folder / "mine.toml")
    return Reproduction(experiment=experiment, rows=rows, devices=()).compared


def test_each_figure_is_that_of_its_row(folder: Path) -> None:
    times, rates = compared(folder, ROWS)
    values = [[one.value for one in line.figures] for line in times.lines]
    assert values == [[1.0, 0.8, 2.0], [0.25, 0.2, 8.0], [0.1, 0.08, 20.0]]
    best, loop = (line.figures[0] for line in rates.lines)
    assert (best.row, best.value) == (ROWS[5], ROWS[5].gflops)
    assert (loop.row, loop.value) == (ROWS[6], ROWS[6].gflops)


def test_a_ratio_says_how_many_times_as_fast(folder: Path) -> None:
    times, rates = compared(folder, ROWS)
    assert [line.ratio for line in times.lines] == [2.0, 4.0, None]
    rate = ROWS[6].gflops
    assert rate
    assert rates.lines[1].ratio == pytest.approx(rate / 50)


def test_percent_of_the_published_peak_is_of_rates_alone(folder: Path) -> None:
    times, rates = compared(folder, ROWS)
    assert [line.published_percent_of_peak for line in times.lines] == [None] * 3
    assert [line.published_percent_of_peak for line in rates.lines] == [5.0, 2.5]


def test_rules_are_judged_at_the_published_labels(folder: Path) -> None:
    times, rates = compared(folder, ROWS)
    assert [one.holds for one in times.judgements] == [True]
    assert [one.holds for one in rates.judgements] == [True]
    assert times.judgements[0].sentence.endswith("measured at 8, published at 8")


def test_what_was_not_measured_stays_empty_and_unjudged(folder: Path) -> None:
    times, _ = compared(folder, [ROWS[0], ROWS[3]])
    values = [[one.value for one in line.figures] for line in times.lines]
    assert values == [[1.0, 0.8, None], [None] * 3, [None] * 3]
    assert times.lines[1].figures[0].row is None
    assert [one.holds for one in times.judgements] == [None]


def test_a_point_that_failed_has_a_row_and_no_figure(folder: Path) -> None:
    of = point(TILE, size=(64, 64, 64), tile=Config.parse("8"), scope=Scope.END_TO_END)
    wrong = failed(Status.WRONG, "off by one", of)
    times, rates = compared(folder, [ROWS[0], wrong])
    figure = times.lines[1].figures[0]
    assert (figure.value, figure.row) == (None, wrong)
    assert rates.lines[0].figures[0].row is None


def test_the_best_tile_is_the_fastest_that_was_right(folder: Path) -> None:
    wrong = replace(
        failed(Status.ERROR, "crash", point(TILE, size=(64, 64, 64), tile=Config.parse("4")))
    )
    _, rates = compared(folder, [wrong, ROWS[5], ROWS[4]])
    assert rates.lines[0].figures[0].row == ROWS[5]


def disagreeing(row: Row) -> Row:
    """The row with rounds that differ by a half."""
    time_us = row.median_us or 0.0
    low_us, high_us = 0.75 * time_us, 1.25 * time_us
    rounds = ";".join(map(str, (low_us, time_us, high_us)))
    return replace(row, round_medians_us=rounds, ci_low_us=low_us, ci_high_us=high_us)


def test_rounds_that_disagree_give_an_interval_and_neither_ratio_nor_verdict(
    tmp_path: Path,
) -> None:
    (tmp_path / "mine.toml").write_text(TEXT)
    experiment = read_experiment(tmp_path / "mine.toml")
    rows = [disagreeing(ROWS[0]), *ROWS[1:]]
    ran = Reproduction(experiment=experiment, rows=rows, devices=())
    times = ran.compared[0]
    assert [line.ratio for line in times.lines] == [None, 4.0, None]
    assert times.lines[0].figures[0].interval == (0.75, 1.25)
    (judgement,) = times.judgements
    assert judgement.holds is None
    assert judgement.sentence == "shape not judged: minimum at 8: rounds disagree at 4"
    (grid, *_) = grids(ran, whole=False)
    assert grid.rows[0][2] == "0.7500 to 1.250 !"
    assert grid.below[-1].startswith("! rounds differ by more than 10 %")


def test_a_speed_up_over_a_disagreeing_baseline_is_an_interval(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(TEXT)
    experiment = read_experiment(tmp_path / "mine.toml")
    rows = [*ROWS[:-1], disagreeing(ROWS[-1])]
    times = Reproduction(experiment=experiment, rows=rows, devices=()).compared[0]
    over_loop = [line.figures[2] for line in times.lines]
    assert all(figure.unstable for figure in over_loop)
    low, high = over_loop[0].interval
    assert (low, high) == (pytest.approx(1.5), pytest.approx(2.5))
    assert not times.lines[0].figures[0].unstable
