"""Tables and files of an experiment, from made-up results."""

import csv
from dataclasses import replace
from pathlib import Path

import pytest
from fakes import CPU, row, series

from gpubench.commands.reproduce.compare import CSV_COLUMNS, OTHER_DEVICE, Reproduction
from gpubench.commands.reproduce.experiment import read_experiment, shipped
from gpubench.commands.reproduce.run import claim, write_comparison
from gpubench.commands.reproduce.view import Grid, closing, grids, markdown, summary
from gpubench.errors import UsageError
from gpubench.hardware.architectures import example
from gpubench.model import CudaVariant, Measurement, Point, Resources, Scope, Status
from gpubench.plan.sweep import plan
from gpubench.results.row import Row

GPU = replace(
    example("sm_90"),
    l2_bytes=62914560,
    facts={"shared_memory_per_block_bytes": 49152, "global_memory_bytes": 150109880320},
)


def time_us(point: Point) -> float:
    """Return a time: shortest at tile 8, twice that end to end, 1000 times for the CPU's loop."""
    edge = next(iter(point.tile.values())) if point.tile else 8
    slower = 1000 if point.variant.name == "cpu_naive" else 1
    copies = 2 if point.scope == Scope.END_TO_END else 1
    return slower * copies * (1 + abs(edge - 8)) * point.problem.flops / 1e7


def measured_row(point: Point) -> Row:
    variant, tile = point.variant, point.tile
    resources = launch = None
    if isinstance(variant, CudaVariant) and tile:
        resources = Resources(registers=255, local_bytes=440, spill_bytes=440, shared_bytes=2048)
        launch = variant.launch(tile, point.problem)
    measurement = Measurement(
        point=point,
        status=Status.OK,
        max_relative_error=1.2345e-8,
        series=series(time_us(point)),
        resources=resources,
        launch=launch,
    )
    return row(measurement, GPU if variant.backend == "cuda" else CPU, "abc")


def done(name: str, *, gpu: bool = True) -> Reproduction:
    """Return the results of a run without running it."""
    experiment = read_experiment(shipped()[name])
    sweeps = [sweep for sweep, *_ in experiment.sweeps_for(gpu=gpu)]
    points = [point for sweep in sweeps for point in plan(sweep, sweep.device)]
    return Reproduction(
        experiment=experiment,
        rows=[measured_row(point) for point in points],
        devices=(GPU, CPU) if gpu else (CPU,),
        no_gpu="" if gpu else "no driver",
    )


def tables_of(name: str, *, gpu: bool = True, whole: bool = False) -> dict[str, Grid]:
    return {grid.title: grid for grid in grids(done(name, gpu=gpu), whole=whole)}


def test_published_figures_stand_beside_measured_ones_with_ratio_and_cause() -> None:
    grid = tables_of("p100-tiles")["register_tile: T×T elements a thread, 8×8 threads a block (ms)"]
    assert grid.table.headings == (
        "tile",
        "published",
        "measured",
        "ratio",
        "kernel",
        "registers",
        "local bytes",
        "blocks",
    )
    by_tile = {row[0]: row[1:] for row in grid.table.lines}
    assert by_tile["8"][:4] == ("2.077536", "0.1074", "19.35", "0.05369")
    assert by_tile["16"][-3:] == ("255", "440", "16")
    assert grid.below[0] == "shape holds: minimum at 4 or 8: measured at 8, published at 8"


def test_the_published_and_the_present_device_are_shown() -> None:
    grid = tables_of("lecture-sdk")["Devices then and now"]
    assert grid.table.headings[-2:] == ("Tesla P100-PCIE-16GB", "NVIDIA H200")
    rows = {row[0]: row[1:] for row in grid.table.lines}
    assert rows["L2 cache, bytes"] == ("none", "786,432", "1,310,720", "4,194,304", "62,914,560")
    assert rows["global memory, MiB"][-1] == "143,155"
    assert rows["peak float32, TFLOP/s"] == ("", "", "3.52", "9.3", "66.91")
    assert "Devices then" in tables_of("lecture-sdk", gpu=False, whole=True)


def test_without_a_gpu_the_published_figures_still_stand_in_markdown() -> None:
    tables = tables_of("p100-tiles", gpu=False, whole=True)
    naive = tables["naive, 8×8 threads a block (ms)"]
    assert (naive.table.headings, naive.table.lines) == (("tile", "published"), [("8", "3.006406")])
    stand_in = tables["cpu_tile: T×T tiles in scratch memory, in place of a GPU (ms)"]
    assert stand_in.table.headings == ("tile", "measured")
    shared_tile = tables["shared_tile: T×T threads a block, one element each (ms)"]
    assert "shape not judged" in shared_tile.below[0]


def test_a_point_that_went_wrong_says_so_in_its_place() -> None:
    ran = done("p100-tiles")
    lost = {"status": "wrong", "reason": "off by one", "median_us": None}
    rows = [replace(each, **lost) if each.variant == "naive" else each for each in ran.rows]
    ran = replace(ran, rows=rows)
    assert grids(ran, whole=False)[0].table.lines[0][:3] == ("8", "3.006406", "wrong")
    wrong = "wrong: naive 8 at 512x512x1024 int32: off by one"  # the same in both scopes
    assert closing(ran) == [wrong, *ran.experiment.file.notes]


# ---- files


def test_the_markdown_holds_every_experiment_with_source_and_verdicts() -> None:
    text = markdown([done("blog-2009"), done("p100-tiles")])
    for part in (
        "## blog-2009: ",
        "## p100-tiles: ",
        "published: Ther-nullptr/cuda_project, Matrix Multiplication with CUDA",
        f"measured: {GPU.name}",
        "| 64 | 83.601498 | ",
        "shape holds: minimum at 4 or 8: measured at 8, published at 8",
    ):
        assert part in text
    assert text.count("The power-of-two trap") == 1


def test_the_csv_has_a_line_for_each_measured_column_of_each_label(tmp_path: Path) -> None:
    ran = done("blog-2009")
    # No text in the file is a formula of a spreadsheet.
    named = replace(ran, experiment=replace(ran.experiment, path=tmp_path / "=1+1.toml"))
    write_comparison([named], tmp_path)
    with (tmp_path / "reproduce.csv").open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    assert tuple(lines[0]) == CSV_COLUMNS
    assert len(lines) == 4 * 4 + 4 * 4 + 4 * 3
    chosen = ("shared_tile 16 over the CPU loop", "2048", "measured")
    (figure,) = (x for x in lines if (x["series"], x["label"], x["column"]) == chosen)
    assert (figure["experiment"], figure["figure"]) == ("'=1+1", "speedup")
    assert (figure["published"], figure["published_device"]) == ("370", "GPU of 2009, not named")
    assert float(figure["measured"]) / 370 == pytest.approx(float(figure["ratio"]))
    assert (figure["variant"], figure["tile"], figure["size"]) == ("shared_tile", "16", "2048")
    assert "rises throughout" in figure["shape"]
    assert {line["published"] for line in lines if line["column"] != "measured"} == {""}


def test_the_summary_counts_rules_that_hold() -> None:
    assert summary(done("p100-tiles")) == "p100-tiles: shape differs (2), shape holds (2)"
    assert summary(done("double-tile")) == "double-tile: nothing was published to compare"
    assert "shape not judged (3)" in summary(done("blog-2009", gpu=False))


@pytest.mark.parametrize("claim", [OTHER_DEVICE, ""])
def test_the_summary_of_figures_without_a_verdict_says_why(claim: str) -> None:
    ran = done("blog-2009")
    ((first, *_), *_), *_ = ran.entries.values()
    ran.__dict__.update(entries={"": [[replace(first, claim=claim)]]}, judgements={})  # cached
    assert summary(ran) == f"blog-2009: {claim or 'nothing was measured to compare'}"


def test_a_users_experiment_in_the_folder_is_no_earlier_run(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(shipped()["p100-tiles"].read_bytes())
    claim(tmp_path, [read_experiment(path)])
    (tmp_path / "mine.csv").symlink_to("nowhere")
    for force in (False, True):
        with pytest.raises(UsageError, match=r"mine.csv is a symbolic link"):
            claim(tmp_path, [read_experiment(path)], force=force)
