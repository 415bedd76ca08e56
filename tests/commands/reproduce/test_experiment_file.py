"""The file of an experiment: valid files are read, and others are refused."""

from pathlib import Path

import pytest

from gpubench.commands.reproduce.experiment import find, read_experiment
from gpubench.commands.reproduce.rules import Figure, Rule
from gpubench.errors import UsageError
from gpubench.model import Fill

WHOLE = """
title = "Tiles on a CPU"
source = "here"
about = "Words."
notes = ["A note."]

[[device]]
name = "Old CPU"
multiprocessors = 2

[[sweep]]
device = "cpu"
variants = ["cpu_tile"]
sizes = [64, "8x8x16"]
tiles = [4, 8, 16]
operands = "index"
rounds = 1

[[sweep]]
device = "cpu"
remember = true
when = "with-gpu"
variants = ["cpu_naive"]
sizes = [64]

[[sweep]]
device = "cuda"
variants = ["shared_tile"]
sizes = [64]
tiles = [4, 8, 16]

[[series]]
name = "cpu_tile"
figure = "ms"
device = "Old CPU"
axis = "tile"
where = { variant = "cpu_tile", size = 64 }
published = { 4 = 3.5, 16 = 1 }
also = 8
beside = [{ name = "× loop", figure = "speedup", over = { variant = "cpu_naive", tile = "" } }]
explain = ["cgma"]
rules = [{ rule = "falls-until", at = 16, by = 2 }]

[[series]]
name = "rates"
figure = "gflops"
axis = "what"

[[series.cell]]
label = "best"
where = { variant = "cpu_tile", size = "64", tile = "best" }
published = 3
device = "Old CPU"
facts = { ms = 2, who = "me" }

[[facts]]
title = "Facts"
columns = ["a", "b"]
rows = [["x", 1], ["y", 2.5]]
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_every_key_of_an_experiment_file_is_read(tmp_path: Path) -> None:
    experiment = read_experiment(written(tmp_path, WHOLE))
    file = experiment.file
    assert (experiment.name, file.title, file.source) == ("mine", "Tiles on a CPU", "here")
    assert (file.about, file.notes) == ("Words.", ("A note.",))
    first, second, third = experiment.sweeps
    assert first[0].operands == (Fill.INDEX,)
    assert first[0].sizes == ((64, 64, 64), (8, 8, 16))
    assert first[0].timing.rounds == 1
    assert (first[1].when, first[1].remember) == ("always", False)
    assert (second[1].when, second[1].remember) == ("with-gpu", True)
    assert third[0].device == "cuda"
    tiles, rates = file.series
    assert tiles.published == {"4": 3.5, "16": 1}
    assert tiles.rules == (Rule(kind="falls-until", at=16, by=2),)
    assert [column.figure for column in tiles.columns] == [None, Figure.SPEEDUP]
    assert rates.cells[0].facts == {"ms": 2, "who": "me"}
    assert file.facts[0].rows == (("x", 1), ("y", 2.5))


def test_a_figure_has_a_cell_and_is_selected_by_series_label_and_column(tmp_path: Path) -> None:
    tiles = read_experiment(written(tmp_path, WHOLE)).file.series[0]
    assert [(cell.label, cell.published, cell.device) for cell in tiles.cells] == [
        ("4", 3.5, "Old CPU"),
        ("8", None, ""),
        ("16", 1, "Old CPU"),
    ]
    usual = {"variant": "cpu_tile", "size": "64"}
    usual |= {"cache": "cold", "launches": "alone", "state": "burst", "scope": "kernel"}
    first, beside = tiles.columns
    measured = usual | {"tile": "8"}
    assert tiles.selections(tiles.cells[1], first) == [measured]
    loop = usual | {"variant": "cpu_naive", "tile": ""}
    assert tiles.selections(tiles.cells[1], beside) == [measured, loop]


def test_sweeps_run_where_they_can_and_are_wanted(tmp_path: Path) -> None:
    experiment = read_experiment(written(tmp_path, WHOLE.replace("with-gpu", "without-gpu")))
    with_gpu = [sweep.variants[0] for sweep, *_ in experiment.sweeps_for(gpu=True)]
    without = [sweep.variants[0] for sweep, *_ in experiment.sweeps_for(gpu=False)]
    assert with_gpu == ["cpu_tile", "shared_tile"]
    assert without == ["cpu_tile", "cpu_naive"]
    other = read_experiment(written(tmp_path, WHOLE))
    assert [sweep.variants[0] for sweep, *_ in other.sweeps_for(gpu=False)] == ["cpu_tile"]
    assert len(other.sweeps_for(gpu=True)) == 3


CHANGES: dict[str, tuple[str, str, str]] = {
    "a key nobody knows": ('source = "here"', 'source = "x"\nsauce = 1', "unknown key 'sauce'"),
    "a sweep on any device": ('device = "cpu"\nvariants', 'device = "auto"\nvariants', "sweep 1"),
    "a bad option of a sweep": ("rounds = 1", "round = 1", "did you mean 'rounds'"),
    "a sweep of nothing legal": ("tiles = [4, 8, 16]", "tiles = [300]", "sweep 1: --tiles"),
    "kernels from elsewhere": ("rounds = 1", 'kernels = "/tmp"', "leads out of"),
    "a loop remembered on a gpu": (
        'device = "cuda"',
        'device = "cuda"\nremember = true',
        "the CPU",
    ),
    "a published figure of zero": (
        "4 = 3.5",
        "4 = 0",
        "series 1: published: must be a whole number of at least 1",
    ),
    "a tile that no sweep has": ("also = 8", "also = 9", "at 9: no sweep measures"),
    "a figure of two points": (", size = 64 }", " }", "2 points have"),
    "a speedup over nothing": (', over = { variant = "cpu_naive", tile = "" }', "", "'over'"),
    "a rule of an unknown label": ("at = 16", "at = 8", "unknown label '8'"),
    "a rule that is not kept": ("by = 2", "by = 4", "the published figures break this rule: ×3.5"),
    "a rule over strangers": (
        '"falls-until", at = 16, by = 2',
        '"faster-than", than = "rates"',
        "no published figures to compare",
    ),
    "two series of one name": (
        'name = "rates"',
        'name = "cpu_tile"',
        "two series have the same name",
    ),
    "facts with short rows": ('["x", 1]', '["x"]', "lists of 2"),
}


def test_an_invalid_entry_is_refused_with_its_place(tmp_path: Path) -> None:
    for case, (old, new, why) in CHANGES.items():
        text = WHOLE.replace(old, new, 1)
        assert text != WHOLE, case
        path = written(tmp_path, text)
        with pytest.raises(UsageError) as refused:
            read_experiment(path)
        assert why in str(refused.value), case
        assert "mine.toml" in str(refused.value), case


def test_experiments_are_found_by_name_and_by_file_and_none_has_the_name_of_another(
    tmp_path: Path,
) -> None:
    mine = written(tmp_path, WHOLE)
    experiments = find(["p100-tiles", str(mine), "p100-tiles"])
    assert [each.name for each in experiments] == ["p100-tiles", "mine"]
    (tmp_path / "sub").mkdir()
    with pytest.raises(UsageError, match="have the same name"):
        find([str(mine), str(written(tmp_path / "sub", WHOLE))])
