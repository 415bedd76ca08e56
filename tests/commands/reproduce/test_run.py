"""What `gpubench reproduce` writes and says, on runs that never happened."""

import csv
from dataclasses import replace
from pathlib import Path

import pytest
from test_view import GPU, as_if_run

from gpubench.commands.reproduce.compare import CSV_COLUMNS, Reproduction
from gpubench.commands.reproduce.experiment import read_experiment, shipped
from gpubench.commands.reproduce.run import claim, write_comparison
from gpubench.commands.reproduce.view import markdown, summary
from gpubench.errors import UsageError


def done(name: str, *, gpu: bool = True) -> Reproduction:
    return as_if_run(read_experiment(shipped()[name]), gpu=gpu)


def test_the_markdown_holds_every_experiment_with_source_and_verdicts() -> None:
    text = markdown([done("blog-2009"), done("p100-tiles")])
    assert text.startswith("# Published experiments, run again\n")
    assert "## blog-2009: " in text
    assert "## p100-tiles: " in text
    assert "published: Ther-nullptr/cuda_project, Matrix Multiplication with CUDA" in text
    assert f"measured: {GPU.name}" in text
    assert "| 64 | 83.601498 | " in text
    assert "shape holds: minimum at 4 or 8: measured at 8, published at 8" in text
    assert text.count("The power-of-two trap") == 1
    assert text.endswith("\n")


def test_the_csv_has_a_line_for_each_measured_column_of_each_label(tmp_path: Path) -> None:
    write_comparison([done("blog-2009")], tmp_path)
    with (tmp_path / "reproduce.csv").open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    assert tuple(lines[0]) == CSV_COLUMNS
    assert len(lines) == 4 * 4 + 4 * 4 + 4 * 3
    (figure,) = (
        line
        for line in lines
        if (line["series"], line["label"], line["column"])
        == ("shared_tile 16 over the CPU loop", "2048", "measured")
    )
    assert (figure["experiment"], figure["figure"]) == ("blog-2009", "speedup")
    assert (figure["published"], figure["published_device"]) == ("370", "GPU of 2009, not named")
    assert float(figure["measured"]) / 370 == pytest.approx(float(figure["ratio"]))
    assert (figure["variant"], figure["tile"], figure["size"]) == ("shared_tile", "16", "2048")
    assert "rises throughout" in figure["shape"]
    assert {line["published"] for line in lines if line["column"] != "measured"} == {""}


def test_no_formula_reaches_the_comparison(tmp_path: Path) -> None:
    ran = done("blog-2009")
    path = tmp_path / "=1+1.toml"
    named = replace(ran, experiment=replace(ran.experiment, path=path))
    write_comparison([named], tmp_path)
    text = (tmp_path / "reproduce.csv").read_text(encoding="utf-8")
    assert "\n'=1+1," in text
    assert "\n=1+1," not in text


def test_the_summary_counts_rules_that_hold() -> None:
    assert summary(done("p100-tiles")) == "p100-tiles: shape differs (2), shape holds (2)"
    assert summary(done("double-tile")) == "double-tile: nothing was published to compare"
    assert "shape not judged (3)" in summary(done("blog-2009", gpu=False))


def test_a_users_experiment_in_the_folder_is_no_earlier_run(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(shipped()["p100-tiles"].read_bytes())
    claim(tmp_path, [read_experiment(path)])
    (tmp_path / "mine.csv").symlink_to("nowhere")
    for force in (False, True):
        with pytest.raises(UsageError, match=r"mine.csv is a symbolic link"):
            claim(tmp_path, [read_experiment(path)], force=force)
