"""Every published figure stands in exactly one experiment, written down here a second time."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from gpubench.commands.reproduce.experiment import Experiment, Series, read_experiment, shipped
from gpubench.model import Fill, Point
from gpubench.plan.sweep import plan

NAMES = ("blog-2009", "double-tile", "lecture-sdk", "p100-tiles", "titan-atax")

PUBLISHED: dict[str, dict[str, dict[str, float]]] = {
    "blog-2009": {
        "naive over the CPU loop": {"1024": 44, "2048": 255},
        "shared_tile 16 over the CPU loop": {"1024": 48, "2048": 370},
    },
    "double-tile": {},
    "lecture-sdk": {
        "matrixMul": {
            "GeForce 9400M": 5.4918,
            "Tesla C2050/C2070": 186.7684,
            "Tesla K20c": 246.13,
            "Tesla P100-PCIE-16GB": 1909.26,
        },
        "cuBLAS": {
            "GeForce 9400M": 7.2791,
            "Tesla C2050/C2070": 424.8840,
            "Tesla K20c": 1171.83,
            "Tesla P100-PCIE-16GB": 3089.82,
        },
    },
    "p100-tiles": {
        "naive, 8×8 threads a block": {"8": 3.006406},
        "register_tile: T×T elements a thread, 8×8 threads a block": {
            "1": 3.282611,
            "2": 2.271091,
            "4": 2.107053,
            "8": 2.077536,
            "16": 7.368474,
            "32": 25.815271,
            "64": 83.601498,
        },
        "shared_tile: T×T threads a block, one element each": {
            "1": 62.395489,
            "2": 10.850624,
            "4": 2.765997,
            "8": 2.107232,
            "16": 1.849939,
            "32": 1.928793,
        },
    },
    "titan-atax": {},
}

BESIDE_THE_FIGURES: dict[tuple[str, str], dict[str, float]] = {
    ("matrixMul", "GeForce 9400M"): {"threads": 256, "operations": 16_384_000, "ms": 2.98},
    ("matrixMul", "Tesla C2050/C2070"): {"threads": 1024, "operations": 786_432_000, "ms": 4.21},
    ("matrixMul", "Tesla K20c"): {"threads": 1024, "operations": 131_072_000, "ms": 0.533},
    ("matrixMul", "Tesla P100-PCIE-16GB"): {
        "threads": 1024,
        "operations": 131_072_000,
        "ms": 0.069,
    },
    ("cuBLAS", "GeForce 9400M"): {"operations": 16_384_000, "ms": 2.25},
    ("cuBLAS", "Tesla C2050/C2070"): {"operations": 786_432_000, "ms": 1.85},
    ("cuBLAS", "Tesla K20c"): {"operations": 131_072_000, "ms": 0.112},
    ("cuBLAS", "Tesla P100-PCIE-16GB"): {
        "operations": 196_608_000,
        "ms": 0.064,
        "second run": 3106.43,
        "its ms": 0.063,
    },
}

ON_K20C_AND_P100 = {
    "registers_per_block": 65_536,
    "shared_memory_per_block_bytes": 49_152,
    "constant_memory_bytes": 65_536,
}

DEVICES: dict[str, dict[str, dict[str, float | str]]] = {
    "blog-2009": {"GPU of 2009, not named": {"threads_per_block": 512}},
    "double-tile": {},
    "lecture-sdk": {
        "GeForce 9400M": {
            "compute_capability": "1.1",
            "registers_per_block": 8_192,
            "shared_memory_per_block_bytes": 16_384,
            "constant_memory_bytes": 65_536,
            "global_memory_mib": 254,
            "l2_bytes": "none",
        },
        "Tesla C2050/C2070": {
            "compute_capability": "2.0",
            "registers_per_block": 32_768,
            "shared_memory_per_block_bytes": 49_152,
            "constant_memory_bytes": 65_536,
            "global_memory_mib": 2_687,
            "l2_bytes": 786_432,
        },
        "Tesla K20c": {
            **ON_K20C_AND_P100,
            "compute_capability": "3.5",
            "global_memory_mib": 4_800,
            "l2_bytes": 1_310_720,
            "peak_float64_tflops": 1.17,
            "peak_float32_tflops": 3.52,
        },
        "Tesla P100-PCIE-16GB": {
            **ON_K20C_AND_P100,
            "compute_capability": "6.0",
            "global_memory_mib": 16_276,
            "l2_bytes": 4_194_304,
            "peak_float16_tflops": 18.7,
            "peak_float32_tflops": 9.3,
            "peak_float64_tflops": 4.7,
        },
    },
    "p100-tiles": {
        "Tesla P100-SXM2-16GB": {
            "multiprocessors": 56,
            "shared_memory_per_block_bytes": 48 * 1024,
            "threads_per_block": 1024,
            "threads_per_multiprocessor": 2048,
        }
    },
    "titan-atax": {"NVIDIA Titan RTX": {"multiprocessors": 72, "threads_per_multiprocessor": 1024}},
}

FACTS: dict[str, list[tuple[float | str, ...]]] = {
    "blog-2009": [
        ("register", "yes", "fast", "small", "thread", "read/write", ""),
        ("shared", "yes", "fast", "small", "thread block", "read/write", ""),
        ("constant", "no", "slow", "small", "grid", "read", "write"),
        ("global", "no", "slow", "largest", "grid", "read/write", "read/write"),
    ],
    "double-tile": [
        ("shared memory or L1", 1, 5),
        ("L2", 10, 20),
        ("global memory", 200, 500),
        *(("convolution",), ("stencils",), ("sorting",), ("FFT",), ("N-body",)),
    ],
    "lecture-sdk": [
        ("C[i] += (*(pA++))*(*pB), one add and one multiply, three accesses", "2/3"),
        ("a w×w tile in shared memory, against the same product untiled", "w times"),
    ],
    "p100-tiles": [
        ("registers for the sums of a thread", "", 256),
        ("registers that a thread may have", "", 255),
        ("blocks in the grid, for 56 multiprocessors", 64, 16),
    ],
    "titan-atax": [
        ("threads a block", 128),
        ("blocks of the vector in a part", 14),
        ("KB of shared memory for a part", 7),
        ("blocks in the grid on the Titan RTX, at most", 576),
        ("rows a block, at most", 128),
        ("bytes of header in its files", 16),
        ("arbitrary dimensions",),
        ("constants chosen per GPU at run time",),
        ("two-dimensional blocks",),
    ],
}

SOURCES = {
    "blog-2009": "Matrix Multiplication 3 (CUDA), blog post, 1 September 2009",
    "double-tile": "Tiled Matrix Multiplication, blog post with saliei/cuda-projects",
    "lecture-sdk": "MCS 572 Lecture 32, Introduction to Supercomputing, Jan Verschelde, "
    "4 November 2016",
    "p100-tiles": "Ther-nullptr/cuda_project, Matrix Multiplication with CUDA",
    "titan-atax": "Parallel Systems course project, University of West Attica",
}


def points(experiment: Experiment) -> list[Point]:
    return [point for sweep, _ in experiment.sweeps for point in plan(sweep, sweep.device)]


@pytest.fixture(scope="module", params=NAMES)
def experiment(request: pytest.FixtureRequest) -> Experiment:
    return read_experiment(shipped()[request.param])


def test_these_are_the_experiments() -> None:
    assert tuple(shipped()) == NAMES


def test_an_experiment_holds_its_published_figures_and_no_others(experiment: Experiment) -> None:
    found = {series.name: series.published for series in experiment.series if series.published}
    assert found == PUBLISHED[experiment.name]


def test_an_experiment_names_its_devices_and_its_source(experiment: Experiment) -> None:
    assert experiment.devices == DEVICES[experiment.name]
    assert experiment.file.source == SOURCES[experiment.name]


def test_every_published_figure_has_its_device(experiment: Experiment) -> None:
    devices = [
        series.device_of(cell)
        for series in experiment.series
        for cell in series.cells
        if cell.published
    ]
    assert all(devices)
    assert bool(devices) == bool(PUBLISHED[experiment.name])


def test_an_experiment_holds_its_published_facts(experiment: Experiment) -> None:
    assert [row for facts in experiment.file.facts for row in facts.rows] == FACTS[experiment.name]


def test_the_lectures_figures_come_with_threads_operations_and_times() -> None:
    lecture = read_experiment(shipped()["lecture-sdk"])
    found = {(s.name, cell.label): cell.facts for s in lecture.series for cell in s.cells}
    assert found == BESIDE_THE_FIGURES


def test_the_lectures_operation_counts_are_those_of_the_shapes_that_are_measured() -> None:
    lecture = read_experiment(shipped()["lecture-sdk"])
    for series in lecture.series:
        for cell in series.cells:
            m, n, k = map(int, str(cell.where["size"]).split("x"))
            assert 2 * m * n * k == cell.facts["operations"]
            # GFLOP/s and milliseconds were published to three digits: they must agree so far.
            assert cell.published is not None
            milliseconds = cell.facts["operations"] / cell.published / 1e6
            assert milliseconds == pytest.approx(cell.facts["ms"], rel=0.01)


def numbers(value: Any) -> set[float]:
    if isinstance(value, dict):
        return set().union(*map(numbers, value.values()))
    if isinstance(value, list):
        return set().union(*map(numbers, value))
    return {value} if isinstance(value, float) else set()


def test_no_measured_figure_stands_in_two_files() -> None:
    """Fractions are figures that somebody measured; whole numbers may be anybody's."""
    by_file = {
        path.stem: numbers(tomllib.loads(path.read_text(encoding="utf-8")).get("series", []))
        for path in shipped().values()
    }
    figures = [figure for found in by_file.values() for figure in found]
    assert len(figures) == len(set(figures)) > 25


def held(series: Series, published: dict[str, dict[str, float]]) -> dict[str, bool]:
    return {
        rule.kind: rule.observe(
            rule.judged(series.figure, series.published, published.get(rule.than, {}))
        )[0]
        for rule in series.rules
    }


def test_the_shapes_that_were_published_are_rules() -> None:
    found: dict[str, dict[str, bool]] = {}
    for name in ("blog-2009", "lecture-sdk", "p100-tiles"):
        experiment = read_experiment(shipped()[name])
        published = {series.name: series.published for series in experiment.series}
        found |= {one.name: held(one, published) for one in experiment.series if one.rules}
    assert found == {
        "naive over the CPU loop": {"rising": True},
        "shared_tile 16 over the CPU loop": {"rising": True, "faster-than": True},
        "cuBLAS": {"faster-than": True},
        "register_tile: T×T elements a thread, 8×8 threads a block": {
            "minimum-at": True,
            "rises-from": True,
        },
        "shared_tile: T×T threads a block, one element each": {
            "falls-until": True,
            "flat-from": True,
        },
    }


def test_the_p100_products_operands_are_indices_that_wrap() -> None:
    experiment = read_experiment(shipped()["p100-tiles"])
    assert {sweep.operands for sweep, _ in experiment.sweeps} == {(Fill.INDEX,)}
    assert {sweep.dtypes for sweep, _ in experiment.sweeps} == {("int32",)}
    assert {sweep.sizes for sweep, _ in experiment.sweeps} == {((512, 512, 1024),)}


def test_the_staged_kernels_run_with_the_published_parameters() -> None:
    """128 threads and 14 blocks of the vector: their only tile where none is asked for."""
    experiment = read_experiment(shipped()["titan-atax"])
    staged = [p for p in points(experiment) if p.variant.name.endswith("_staged")]
    assert {p.variant.op for p in staged} == {"gemv", "gemv_t", "atax"}
    assert {str(p.tile) for p in staged} == {"128x14"}


def test_experiments_come_with_the_package() -> None:
    """The wheel holds configs/ as gpubench/configs; see pyproject.toml."""
    pyproject = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())
    included = pyproject["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert included == {"configs": "gpubench/configs"}
    assert {path.parent.name for path in shipped().values()} == {"configs"}


def test_the_lecture_runs_hot_as_the_sdk_loops_over_the_same_operands() -> None:
    lecture = read_experiment(shipped()["lecture-sdk"])
    on_gpu = [point for point in points(lecture) if point.variant.backend == "cuda"]
    assert on_gpu
    assert {point.cache for point in points(lecture)} == {"hot"}
