"""Tables of an experiment, for the terminal and as markdown."""

from dataclasses import replace

from fakes import CPU, series

from gpubench.commands.reproduce.compare import Reproduction
from gpubench.commands.reproduce.experiment import Experiment, read_experiment, shipped
from gpubench.commands.reproduce.view import Grid, closing, grids
from gpubench.hardware.architectures import example
from gpubench.model import CudaVariant, Measurement, Point, Resources, Scope, Status
from gpubench.plan.sweep import plan
from gpubench.results.row import Row
from gpubench.results.rows import row

GPU = replace(
    example("sm_90"),
    l2_bytes=62914560,
    facts={
        "registers_per_block": 65536,
        "shared_memory_per_block_bytes": 49152,
        "constant_memory_bytes": 65536,
        "global_memory_bytes": 150109880320,
        "threads_per_block": 1024,
        "threads_per_multiprocessor": 2048,
    },
)


def time_us(point: Point) -> float:
    """Fastest at tile 8; twice the time end to end; the CPU's loop a thousandth as fast."""
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


def as_if_run(experiment: Experiment, *, gpu: bool) -> Reproduction:
    """What a run would leave, without one."""
    sweeps = [sweep for sweep, *_ in experiment.sweeps_for(gpu=gpu)]
    points = [point for sweep in sweeps for point in plan(sweep, sweep.device)]
    return Reproduction(
        experiment=experiment,
        rows=[measured_row(point) for point in points],
        devices=(GPU, CPU) if gpu else (CPU,),
        no_gpu="" if gpu else "no driver",
    )


def tables_of(name: str, *, gpu: bool = True, whole: bool = False) -> dict[str, Grid]:
    experiment = read_experiment(shipped()[name])
    return {grid.title: grid for grid in grids(as_if_run(experiment, gpu=gpu), whole=whole)}


def test_published_stands_beside_measured_with_the_ratio_and_why() -> None:
    grid = tables_of("p100-tiles")["register_tile: T×T elements a thread, 8×8 threads a block (ms)"]
    assert grid.table.headings == (
        *("tile", "published", "measured", "ratio", "kernel"),
        *("registers", "local bytes", "blocks"),
    )
    by_tile = {row[0]: row[1:] for row in grid.table.lines}
    assert by_tile["8"][:4] == ("2.077536", "0.1074", "19.35", "0.05369")
    assert by_tile["16"][-3:] == ("255", "440", "16")
    assert grid.below[0] == "shape holds: minimum at 4 or 8: measured at 8, published at 8"


def test_devices_stand_then_and_now() -> None:
    grid = tables_of("lecture-sdk")["Devices then and now"]
    assert grid.table.headings[-2:] == ("Tesla P100-PCIE-16GB", "NVIDIA H200")
    rows = {row[0]: row[1:] for row in grid.table.lines}
    assert rows["L2 cache, bytes"] == ("none", "786,432", "1,310,720", "4,194,304", "62,914,560")
    assert rows["global memory, MiB"][-1] == "143,155"
    assert rows["peak float32, TFLOP/s"] == ("", "", "3.52", "9.3", "66.91")
    assert "Devices then" in tables_of("lecture-sdk", gpu=False, whole=True)


def test_without_a_gpu_the_published_figures_still_stand_in_markdown() -> None:
    found = tables_of("p100-tiles", gpu=False, whole=True)
    naive = found["naive, 8×8 threads a block (ms)"]
    assert (naive.table.headings, naive.table.lines) == (("tile", "published"), [("8", "3.006406")])
    stand_in = found["cpu_tile: T×T tiles in scratch memory, in place of a GPU (ms)"]
    assert stand_in.table.headings == ("tile", "measured")
    assert (
        "shape not judged"
        in found["shared_tile: T×T threads a block, one element each (ms)"].below[0]
    )


def test_a_point_that_went_wrong_says_so_in_its_place() -> None:
    experiment = read_experiment(shipped()["p100-tiles"])
    ran = as_if_run(experiment, gpu=True)
    rows = [
        replace(one, status="wrong", reason="off by one", median_us=None)
        if one.variant == "naive"
        else one
        for one in ran.rows
    ]
    ran = replace(ran, rows=rows)
    first = grids(ran, whole=False)[0]
    assert first.table.lines[0][:3] == ("8", "3.006406", "wrong")
    wrong = "wrong: naive 8 at 512x512x1024 int32: off by one"  # in both scopes
    assert closing(ran) == [wrong, *experiment.file.notes]
