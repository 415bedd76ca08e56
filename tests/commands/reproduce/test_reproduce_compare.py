"""Published figures are compared with measured rows."""

from dataclasses import replace

import pytest
from fakes import failed, measured, point, variant

from gpubench.commands.reproduce.compare import Entry, Reproduction
from gpubench.commands.reproduce.experiment import Experiment, read_experiment
from gpubench.commands.reproduce.rules import Judgement, Rule
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
    at = point(TILE, size=(64, 64, 64), tile=Config.parse(str(edge)), scope=scope)
    return measured(time_us, at, round_medians_us=(time_us,) * 3)


ROWS = [
    *(tiled(edge, us, Scope.END_TO_END) for edge, us in ((4, 1000), (8, 250), (16, 100))),
    *(tiled(edge, us) for edge, us in ((4, 800), (8, 200), (16, 80))),
    measured(1600, point(LOOP, size=(64, 64, 64))),
]


Labels = list[list[Entry]]


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Experiment:
    path = tmp_path_factory.mktemp("experiments") / "mine.toml"
    path.write_text(TEXT)
    return read_experiment(path)


def run(experiment: Experiment, rows: list[Row]) -> Reproduction:
    return Reproduction(experiment=experiment, rows=rows, devices=())


def compared(experiment: Experiment, rows: list[Row]) -> list[Labels]:
    return list(run(experiment, rows).entries.values())


def values(labels: Labels) -> list[list[float | None]]:
    return [[entry.measured for entry in entries] for entries in labels]


def judged(experiment: Experiment, rows: list[Row]) -> list[Judgement]:
    return [judgement for rules in run(experiment, rows).judgements.values() for judgement in rules]


def test_each_figure_is_that_of_its_row_with_ratio_and_percentage(
    experiment: Experiment,
) -> None:
    times, rates = compared(experiment, ROWS)
    assert values(times) == [[1.0, 0.8, 2.0], [0.25, 0.2, 8.0], [0.1, 0.08, 20.0]]
    assert [entries[0].ratio for entries in times] == [2.0, 4.0, None]  # times as fast as published
    best, loop = (entries[0] for entries in rates)
    assert (best.row, best.measured) == (ROWS[5], ROWS[5].gflops)
    assert (loop.row, loop.measured) == (ROWS[6], ROWS[6].gflops)
    assert loop.ratio == pytest.approx((ROWS[6].gflops or 0) / 50)
    for labels, percents in ((times, [None] * 3), (rates, [5.0, 2.5])):
        assert [entries[0].published_percent_of_peak for entries in labels] == percents
    lowest, highest = judged(experiment, ROWS)
    assert (lowest.holds, highest.holds) == (True, True)
    assert lowest.sentence.endswith("measured at 8, published at 8")


def test_what_was_not_measured_or_failed_has_no_figure_and_no_rule(
    experiment: Experiment,
) -> None:
    times, _ = compared(experiment, [ROWS[0], ROWS[3]])
    assert values(times) == [[1.0, 0.8, None], [None] * 3, [None] * 3]
    assert times[1][0].row is None
    assert judged(experiment, [ROWS[0], ROWS[3]])[0].holds is None
    at = point(TILE, size=(64, 64, 64), tile=Config.parse("8"), scope=Scope.END_TO_END)
    wrong = failed(Status.WRONG, "off by one", at)
    times, rates = compared(experiment, [ROWS[0], wrong])
    assert (times[1][0].measured, times[1][0].row) == (None, wrong)
    assert rates[0][0].row is None
    # The best tile is the fastest tile with a right result.
    assert compared(experiment, [wrong, ROWS[5], ROWS[4]])[1][0][0].row == ROWS[5]


def disagreeing(row: Row) -> Row:
    """Return the row with rounds that differ by half of the time."""
    time_us = row.median_us or 0.0
    low_us, high_us = 0.75 * time_us, 1.25 * time_us
    rounds = (low_us, time_us, high_us)
    return replace(row, round_medians_us=rounds, ci_low_us=low_us, ci_high_us=high_us)


def test_rounds_that_disagree_give_an_interval_and_no_ratio(experiment: Experiment) -> None:
    result = run(experiment, [disagreeing(ROWS[0]), *ROWS[1:]])
    times = result.entries["times"]
    assert [entries[0].ratio for entries in times] == [None, 4.0, None]
    assert (times[0][0].measured_low, times[0][0].measured_high) == (0.75, 1.25)
    (judgement,) = result.judgements["times"]
    assert judgement.holds is None
    assert judgement.sentence == "shape not judged: minimum at 8: rounds disagree at 4"
    (grid, *_) = grids(result, whole=False)
    assert grid.table.lines[0][2] == "0.75 to 1.25 !"
    assert grid.below[-1].startswith("! rounds differ by more than 10 %")


def test_two_rounds_that_disagree_have_no_interval(experiment: Experiment) -> None:
    result = run(experiment, [*ROWS[:-1], replace(ROWS[-1], round_medians_us=(1200, 2000))])
    entry = result.entries["times"][0][2]
    assert (entry.measured_low, entry.measured_high, entry.unstable) == (None, None, True)
    assert grids(result, whole=False)[0].table.lines[0][-1] == "2 !"


def test_a_speed_up_over_a_disagreeing_baseline_is_an_interval(experiment: Experiment) -> None:
    times = run(experiment, [*ROWS[:-1], disagreeing(ROWS[-1])]).entries["times"]
    over_loop = [entries[2] for entries in times]
    assert all(entry.unstable for entry in over_loop)
    interval = (over_loop[0].measured_low, over_loop[0].measured_high)
    assert over_loop[0].measured == pytest.approx(2)
    assert interval == (pytest.approx(1.036, abs=0.001), pytest.approx(3.698, abs=0.001))
    assert not times[0][0].unstable


@pytest.mark.parametrize("kind", ["minimum-at", "maximum-at"])
def test_an_extreme_may_be_at_any_of_the_labels_with_equal_figures(kind: str) -> None:
    others = {"16": 2.0 if kind == "minimum-at" else 0.5}
    for label in ("4", "8"):
        rule = Rule(kind=kind, at=label)
        assert rule.observe({"4": 1.0, "8": 1.0, **others}) == (True, f"at {label}")
    assert Rule(kind=kind, at=16).observe({"4": 1.0, "8": 1.0, **others}) == (False, "at 4")
