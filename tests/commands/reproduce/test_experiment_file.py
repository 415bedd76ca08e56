"""What an experiment's file may say, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpubench.commands.reproduce.experiment import find, read_experiment, shipped
from gpubench.commands.reproduce.rules import FallsUntil, Figure
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


def test_a_whole_file_is_read(tmp_path: Path) -> None:
    experiment = read_experiment(written(tmp_path, WHOLE))
    file = experiment.file
    assert (experiment.name, file.title, file.source) == ("mine", "Tiles on a CPU", "here")
    assert (file.about, file.notes) == ("Words.", ("A note.",))
    first, second, third = experiment.sweeps
    assert first.sweep.operands == Fill.INDEX
    assert first.sweep.sizes == ((64, 64, 64), (8, 8, 16))
    assert first.sweep.timing.rounds == 1
    assert (first.conditions.when, first.conditions.remember) == ("always", False)
    assert (second.conditions.when, second.conditions.remember) == ("with-gpu", True)
    assert third.sweep.device == "cuda"
    tiles, rates = experiment.series
    assert tiles.published == {"4": 3.5, "16": 1}
    assert tiles.rules == (FallsUntil(at=16, by=2),)
    assert [tiles.figure_of(column) for column in tiles.columns] == [Figure.MS, Figure.SPEEDUP]
    assert rates.cells[0].facts == {"ms": 2, "who": "me"}
    assert file.facts[0].rows == (("x", 1), ("y", 2.5))


def test_labels_that_are_numbers_stand_in_their_order_whether_published_or_not(
    tmp_path: Path,
) -> None:
    tiles = read_experiment(written(tmp_path, WHOLE)).series[0]
    assert [(cell.label, cell.published, tiles.device_of(cell)) for cell in tiles.cells] == [
        ("4", 3.5, "Old CPU"),
        ("8", None, ""),
        ("16", 1, "Old CPU"),
    ]


def test_a_figure_is_selected_by_series_label_and_column(tmp_path: Path) -> None:
    tiles = read_experiment(written(tmp_path, WHOLE)).series[0]
    usual = {"variant": "cpu_tile", "size": "64", "cache": "cold", "scope": "kernel"}
    first, beside = tiles.columns
    assert tiles.selection(tiles.cells[1], first) == usual | {"tile": "8"}
    assert tiles.baseline(tiles.cells[1], first) is None
    loop = usual | {"variant": "cpu_naive", "tile": ""}
    assert tiles.baseline(tiles.cells[1], beside) == loop


def test_sweeps_run_where_they_can_and_are_wanted(tmp_path: Path) -> None:
    experiment = read_experiment(written(tmp_path, WHOLE.replace("with-gpu", "without-gpu")))
    with_gpu = [one.sweep.variants[0] for one in experiment.sweeps_for(gpu=True)]
    without = [one.sweep.variants[0] for one in experiment.sweeps_for(gpu=False)]
    assert with_gpu == ["cpu_tile", "shared_tile"]
    assert without == ["cpu_tile", "cpu_naive"]
    other = read_experiment(written(tmp_path, WHOLE))
    assert [one.sweep.variants[0] for one in other.sweeps_for(gpu=False)] == ["cpu_tile"]
    assert len(other.sweeps_for(gpu=True)) == 3


CHANGES: dict[str, tuple[str, str, str]] = {
    "no title": ('title = "Tiles on a CPU"', "", "'title' is missing"),
    "blank title": (
        'title = "Tiles on a CPU"',
        'title = " "',
        "title: expected text that is not blank",
    ),
    "title of a number": (
        'title = "Tiles on a CPU"',
        "title = 3",
        "title: expected text, got integer",
    ),
    "a key nobody knows": ('source = "here"', 'source = "x"\nsauce = 1', "did you mean 'source'"),
    "notes that are no list": ('notes = ["A note."]', "notes = 3", "notes: expected list"),
    "device without a name": ('name = "Old CPU"', "", "device 1: 'name' is missing"),
    "device with a strange fact": ("multiprocessors = 2", "multiprocessor = 2", "did you mean"),
    "device with a list": (
        "multiprocessors = 2",
        "multiprocessors = [2]",
        "expected number or text, got list",
    ),
    "device that is a table": ("[[device]]", "[device]", "device: expected list, got table"),
    "sweep without a device": ('device = "cpu"\nvariants', "variants", "sweep 1: 'device'"),
    "sweep on any device": ('device = "cpu"\nvariants', 'device = "auto"\nvariants', "sweep 1"),
    "sweep with a bad size": ("sizes = [64, ", "sizes = [0, ", "sweep 1: --sizes"),
    "sweep with a bad option": ("rounds = 1", "round = 1", "did you mean 'rounds'"),
    "sweep with an output": ("rounds = 1", 'output = "x.csv"', "'output'"),
    "sweep of an unknown variant": ('["cpu_tile"]', '["cpu_tyle"]', "did you mean 'cpu_tile'"),
    "sweep of nothing legal": ("tiles = [4, 8, 16]", "tiles = [300]", "sweep 1: --tiles"),
    "when nobody knows": ('"with-gpu"', '"sometimes"', "when: unknown value 'sometimes'"),
    "remember what is no flag": (
        "remember = true",
        "remember = 1",
        "remember: expected true or false",
    ),
    "remember on a gpu": ('device = "cuda"', 'device = "cuda"\nremember = true', "on the CPU"),
    "figure: unknown value": ('figure = "ms"', 'figure = "µs"', "figure: unknown value"),
    "unknown axis": ('axis = "tile"', 'axis = "tyle"', "did you mean 'tile'"),
    "unknown key selected": ("where = { variant = ", "where = { variat = ", "did you mean"),
    "selected by a list": (
        "size = 64 }",
        "size = [64] }",
        "where: expected integer or text, got list",
    ),
    "published text": ("4 = 3.5", '4 = "3.5"', "published: expected number, got text"),
    "published zero": ("4 = 3.5", "4 = 0", "published: expected integer >= 1"),
    "published negative": ("4 = 3.5", "4 = -3.5", "published: expected number > 0"),
    "published nan": ("4 = 3.5", "4 = nan", "published: expected number > 0"),
    "published infinity": ("4 = 3.5", "4 = inf", "published: expected number <= 1e+300"),
    "published flag": ("4 = 3.5", "4 = true", "published: expected number, got true"),
    "a label that is too much": ("also = 8", f"also = {'9' * 500}", "beyond 64 bits"),
    "a label of a fraction": (
        "also = 8",
        "also = 8.5",
        "also: expected integer or text or list, got number",
    ),
    "a tile that no sweep has": ("also = 8", "also = 9", "at 9: no sweep measures"),
    "a size that is not said": (", size = 64 }", " }", "2 points have"),
    "speedup over nothing": (', over = { variant = "cpu_naive", tile = "" }', "", "'over'"),
    "over, but no speedup": ('explain = ["cgma"]', 'over = { tile = "" }', "'over'"),
    "unknown column": ('["cgma"]', '["cmga"]', "did you mean 'cgma'"),
    "rule: unknown value 'drops-until'; did you mean 'falls-until'": (
        '"falls-until"',
        '"drops-until"',
        "rule: unknown value 'drops-until'; did you mean 'falls-until'",
    ),
    "rule without a label": ("at = 16, ", "", "'at' is missing"),
    "rule with two labels": ("at = 16", "at = [4, 16]", "at: expected integer or text, got list"),
    "rule with an unknown label": ("at = 16", "at = 8", "unknown label '8'"),
    "rule from the first label": ("at = 16", "at = 4", "no step before"),
    "rule by less than one": ("by = 2", "by = 0.5", "by: expected number >= 1"),
    "rule by text": ("by = 2", 'by = "2"', "by: expected number, got text"),
    "rule that is not kept": ("by = 2", "by = 4", "the published figures do not keep it: ×3.5"),
    "rule with a stray key": ("by = 2", "by = 2, than = 'x'", "unknown key 'than'"),
    "faster than nobody": (
        '"falls-until", at = 16, by = 2',
        '"faster-than", than = "x"',
        "unknown series 'x'",
    ),
    "faster than strangers": (
        '"falls-until", at = 16, by = 2',
        '"faster-than", than = "rates"',
        "no label in common",
    ),
    "two series of one name": ('name = "rates"', 'name = "cpu_tile"', "two series have one name"),
    "a cell of an unknown device": (
        'device = "Old CPU"\nfacts',
        'device = "Odd CPU"\nfacts',
        "did you mean 'Old CPU'",
    ),
    "a cell without a label": ('label = "best"\n', "", "'label' is missing"),
    "a cell published twice": (
        "published = 3\n",
        "published = [3, 4]\n",
        "expected number, got list",
    ),
    "facts of a list": (
        "facts = { ms = 2,",
        "facts = { ms = [2],",
        "facts: expected number or text, got list",
    ),
    "facts with short rows": ('["x", 1]', '["x"]', "lists of 2"),
    "series without labels": ("published = { 4 = 3.5, 16 = 1 }\nalso = 8", "", "names no figure"),
    "kernels from elsewhere": ("rounds = 1", 'kernels = "/tmp"', "leads out of"),
    "no sweeps": ("[[sweep]]", "[[device]]", "device 2"),
    "broken": ("[[facts]]", "[[facts]", "is not TOML"),
}


def test_what_does_not_fit_is_refused_with_its_place(tmp_path: Path) -> None:
    for case, (old, new, why) in CHANGES.items():
        text = WHOLE.replace(old, new, 1)
        assert text != WHOLE, case
        path = written(tmp_path, text)
        with pytest.raises(UsageError) as refused:
            read_experiment(path)
        assert why in str(refused.value), case
        assert "mine.toml" in str(refused.value), case


def test_without_sweeps_there_is_nothing_to_measure(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nothing to measure"):
        read_experiment(written(tmp_path, 'title = "a"\nsource = "b"\n'))


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read"):
        read_experiment(tmp_path / "nowhere.toml")
    with pytest.raises(UsageError, match="cannot read"):
        read_experiment(tmp_path)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="is not TOML"):
        read_experiment(path)


def test_experiments_are_found_by_name_and_by_file(tmp_path: Path) -> None:
    mine = written(tmp_path, WHOLE)
    found = find(["p100-tiles", str(mine), "p100-tiles"])
    assert [one.name for one in found] == ["p100-tiles", "mine"]


def test_a_name_that_is_nearly_right_is_pointed_at() -> None:
    with pytest.raises(UsageError, match=r"did you mean 'p100-tiles'\?.*ends in \.toml"):
        find(["p100-tile"])


def test_two_files_of_one_name_would_overwrite_each_other(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    with pytest.raises(UsageError, match="have one name"):
        find([str(written(tmp_path, WHOLE)), str(written(tmp_path / "sub", WHOLE))])


def test_a_file_of_options_is_no_experiment() -> None:
    assert "quick" not in shipped()
