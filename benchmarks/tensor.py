"""Measure kernels on tensor cores beside cuBLAS, in bursts and sustained.

    python benchmarks/tensor.py tensor tensor.csv              # 16 bits; about 12 minutes
    python benchmarks/tensor.py precisions tf32.csv --dtypes tf32 --sizes 4096       # a part

Every kernel on tensor cores is swept at its default tiles in burst state. Then the fastest kernels
of each problem run sustained, interleaved with cuBLAS and the tuned cuBLASLt.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import shared  # noqa: F401 # puts this tree's package on the path

from gpubench.engine.pool import local_pool
from gpubench.engine.prepare import prepare
from gpubench.engine.run import run
from gpubench.model import CORE_DTYPES, CudaVariant, Point
from gpubench.options import read_sweep
from gpubench.plan.registry import of_op
from gpubench.results.row import Row, write
from gpubench.view.row_tables import by_problem

LIBRARIES = ("cublas", "cublaslt")
EMULATED = "cublas_emulated"


@dataclass(frozen=True, kw_only=True)
class Suite:
    """The problems of one file, and how they are measured."""

    problems: dict[str, str]
    """The sizes of each dtype."""

    finalists: int
    """Number of kernels of a problem that run sustained."""

    burst_rounds: int
    rounds: int
    """Number of rounds in sustained state."""


SUITES = {
    "tensor": Suite(
        problems={
            "bfloat16": "1024,2048,4000x4104x3992,4096,8192,16384",
            "float16": "4096,8192",
        },
        finalists=4,
        burst_rounds=5,
        rounds=5,
    ),
    "precisions": Suite(
        problems={
            "float32": "4096",
            "tf32": "1024,2048,4096,8192,3001x4100x2804",
            "float64": "1024,2048,4096,8192,3001x4100x2804",
            **dict.fromkeys(("bfloat16", "float16"), "4096"),
            **dict.fromkeys(("int8", "float8_e4m3"), "4096,8192"),
            "float8_e4m3_split": "4096",
        },
        finalists=2,
        burst_rounds=2,
        rounds=5,
    ),
}


def measure(suite: Suite, path: Path) -> None:
    """Measure a suite, and write the rows of both states after each dtype."""
    measured: list[Row] = []
    with local_pool("cuda") as pool:
        for dtype, sizes in suite.problems.items():
            asked = {"dtypes": dtype, "sizes": sizes, "variants": ",".join(contenders(dtype))}
            rounds = {"rounds": str(suite.burst_rounds)}
            burst = run(prepare(read_sweep(asked | rounds), pool.device), pool).rows
            best = {key for rows in by_problem(burst) for key in finalists(rows, suite.finalists)}

            def is_finalist(point: Point, best: set[tuple[str, str, str]] = best) -> bool:
                name, size = point.variant.name, point.problem.size
                return name in (*LIBRARIES, EMULATED) or (size, name, str(point.tile)) in best

            sustained = read_sweep(asked | {"state": "sustained", "rounds": str(suite.rounds)})
            job = prepare(sustained, pool.device, keep=is_finalist)
            measured += [*burst, *run(job, pool).rows]
            write(measured, path)


def contenders(dtype: str) -> list[str]:
    """Return the libraries and the kernels on tensor cores; in float32 the fastest other kernel."""
    kernels = [
        variant.name
        for variant in of_op("gemm").values()
        if isinstance(variant, CudaVariant) and dtype in variant.dtypes
        if variant.name == "packed_panels" or not set(variant.dtypes) & {"float32"}
        if not set(CORE_DTYPES) <= set(variant.dtypes)
    ]
    return [*kernels, *LIBRARIES, *([EMULATED] if dtype == "float64" else [])]


def finalists(rows: Sequence[Row], count: int) -> set[tuple[str, str, str]]:
    """Return size, kernel and tile of the fastest kernels of one problem."""
    libraries = {*LIBRARIES, EMULATED}
    kernels = [row for row in rows if row.variant not in libraries and row.median_us]
    kernels.sort(key=lambda row: row.median_us or math.inf)
    return {(row.size, row.variant, row.tile) for row in kernels[:count]}


def part(problems: dict[str, str], dtypes: str | None, sizes: str | None) -> dict[str, str]:
    """Return the problems of these dtypes and sizes; None selects all."""
    return {
        dtype: ",".join(kept)
        for dtype, listed in problems.items()
        if dtypes is None or dtype in dtypes.split(",")
        if (kept := [size for size in listed.split(",") if not sizes or size in sizes.split(",")])
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("suite", choices=SUITES)
    parser.add_argument("csv", type=Path)
    parser.add_argument("--dtypes", help="a selection of the suite's")
    parser.add_argument("--sizes", help="a selection of each dtype's")
    asked = parser.parse_args()
    suite = SUITES[asked.suite]
    problems = part(suite.problems, asked.dtypes, asked.sizes)
    measure(replace(suite, problems=problems), asked.csv)


if __name__ == "__main__":
    main()
