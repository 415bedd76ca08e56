"""Tensor cores beside cuBLAS, in short visits and in long runs: 16 bits, or every precision.

    python benchmarks/tensor.py measure tensor results/h200/tensor.csv          # about 12 minutes
    python benchmarks/tensor.py measure precisions results/h200/precisions.csv
    python benchmarks/tensor.py table results/h200/precisions.csv > results/h200/precisions.md

`--dtypes tf32 --sizes 4096` measures a part, and `python benchmarks/join.py` puts parts together.

`measure` sweeps every kernel on tensor cores at its default tiles in burst state. Then the fastest
of each problem run sustained, interleaved with cuBLAS and the tuned cuBLASLt.

`table` compares the fastest kernel with the faster library. The ratio is that of the medians; its
95 % interval is Student's, from the logarithms of the ratios of the rounds, which are interleaved.
Where a library's launches are too short to be sustained, its time in bursts stands in: the clock is
higher there, so the ratio is no larger than it would be. There is no interval if the two states had
different numbers of rounds. Float64 emulated by cuBLAS stands below, with its error.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from shared import ratio_interval, rounds

from gpubench.engine.pool import local_pool
from gpubench.engine.prepare import prepare
from gpubench.engine.run import run
from gpubench.model import CORE_DTYPES, CudaVariant, Point, State, Status
from gpubench.options import read_sweep
from gpubench.plan.registry import of_op
from gpubench.results.row import Row, read, write
from gpubench.view.tables import best_of, by_problem

LIBRARIES = ("cublas", "cublaslt")
EMULATED = "cublas_emulated"


@dataclass(frozen=True, kw_only=True)
class Suite:
    """What one file holds."""

    problems: dict[str, str]
    """The sizes of each dtype."""

    finalists: int
    """Kernels of a problem that run sustained."""

    burst_rounds: int
    rounds: int
    """In sustained state."""


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

ASKED = {
    ("bfloat16", "1024"): 1.1,
    ("bfloat16", "2048"): 1.01,
    ("bfloat16", "4096"): 1.03,
    ("bfloat16", "8192"): 1.03,
    ("bfloat16", "16384"): 1.01,
    ("bfloat16", "4000x4104x3992"): 1.02,
    ("float16", "4096"): 1.02,
    ("float16", "8192"): 1.02,
    ("tf32", "1024"): 1.25,
    ("tf32", "2048"): 1.05,
    ("tf32", "4096"): 1.025,
    ("tf32", "8192"): 1.025,
    **{("float64", size): 1.06 for size in ("1024", "2048", "4096", "8192")},
    **{(dtype, "3001x4100x2804"): 1.1 for dtype in ("tf32", "float64")},
    **{(dtype, size): 1.05 for dtype in ("int8", "float8_e4m3") for size in ("4096", "8192")},
}
"""Of the sustained ratio, before it was measured."""


def times_as_fast(own: Row, library: Row) -> tuple[float, float, str]:
    """How many times as fast a kernel is; the upper end of the 95 % interval, and the interval.

    Without an interval, if the two had different numbers of rounds, the upper end is the ratio.
    """
    ratio = (library.median_us or math.nan) / (own.median_us or math.nan)
    if len(rounds(library)) != len(rounds(own)):
        return ratio, ratio, ""
    low, high = ratio_interval(rounds(library), rounds(own))
    return ratio, high, f"{low:.3f} to {high:.3f}"


def judged(asked: float, ratio: float, high: float) -> str:
    """Of a bound, by a ratio and the upper end of its interval."""
    if ratio >= asked:
        return "met"
    return "its interval reaches it" if high >= asked else "**missed**"


def measure(suite: Suite, path: Path) -> None:
    """Write the rows of both states."""
    rows: list[Row] = []
    with local_pool("cuda") as pool:
        for dtype, sizes in suite.problems.items():
            asked = {"dtypes": dtype, "sizes": sizes, "variants": ",".join(contenders(dtype))}
            rounds = {"rounds": str(suite.burst_rounds)}
            burst = run(prepare(read_sweep(asked | rounds), pool.device), pool).rows
            best = {
                key
                for of_problem in by_problem(burst)
                for key in finalists(of_problem, suite.finalists)
            }

            def wanted(point: Point, best: set[tuple[str, str, str]] = best) -> bool:
                name, size = point.variant.name, point.problem.size
                return name in (*LIBRARIES, EMULATED) or (size, name, str(point.tile)) in best

            sustained = read_sweep(asked | {"state": "sustained", "rounds": str(suite.rounds)})
            job = prepare(sustained, pool.device, keep=wanted)
            rows += [*burst, *run(job, pool).rows]
            write(rows, path)


def contenders(dtype: str) -> list[str]:
    """The kernels on tensor cores in a dtype, in float32 the fastest on the cores; libraries."""
    kernels = [
        variant.name
        for variant in of_op("gemm").values()
        if isinstance(variant, CudaVariant) and dtype in variant.dtypes
        if variant.name == "packed_panels" or not set(variant.dtypes) & {"float32"}
        if not set(CORE_DTYPES) <= set(variant.dtypes)
    ]
    return [*kernels, *LIBRARIES, *([EMULATED] if dtype == "float64" else [])]


def is_own(row: Row) -> bool:
    """Whether it is one of ours."""
    return row.variant not in {*LIBRARIES, EMULATED}


def library_of(own: Row, rows: Sequence[Row]) -> Row | None:
    """The faster library at a kernel's problem: in its state, or else in bursts."""
    for state in (own.state, State.BURST):
        problem = replace(own, state=state).problem_key
        if timed := [
            row
            for row in rows
            if row.variant in LIBRARIES and row.median_us and row.problem_key == problem
        ]:
            return best_of(timed)
    return None


def finalists(rows: Sequence[Row], count: int) -> set[tuple[str, str, str]]:
    """Size, kernel and tile of the fastest in one problem."""
    kernels = [row for row in rows if is_own(row) and row.median_us]
    kernels.sort(key=lambda row: row.median_us or math.inf)
    return {(row.size, row.variant, row.tile) for row in kernels[:count]}


def table(rows: Sequence[Row]) -> Iterator[str]:
    """Markdown: a line a problem and state."""
    headings = ["precision", "size", "state", "fastest kernel", "Top/s", "% of peak", "% at clock"]
    headings += ["MHz", "W", "pJ/op", "library", "its Top/s", "its % of peak", "its pJ/op"]
    yield from head([*headings, "ratio", "95 % interval", "asked"])
    done = [row for row in rows if row.status == Status.OK]
    for of_problem in by_problem(done):
        times = sorted(of_problem, key=lambda row: row.median_us or math.inf)
        own = next(filter(is_own, times), None)
        library = own and library_of(own, done)
        if not own or not library:
            missing = "no library" if own else "no kernel"
            yield f"| {times[0].compute_mode} | {times[0].size} | {times[0].state} | {missing} |"
            continue
        ratio, high, interval = times_as_fast(own, library)
        name = library.variant if library.state == own.state else f"{library.variant}, in bursts"
        asked = ASKED.get((own.compute_mode, own.size)) if own.state == State.SUSTAINED else None
        verdict = f"≥ {asked}: {judged(asked, ratio, high)}" if asked else ""
        cells = [own.compute_mode, own.size, own.state, f"{own.variant} {own.tile}", tera(own)]
        cells += [text(own.percent_of_peak, 1), text(own.percent_of_peak_at_clock, 1)]
        cells += [text(own.sm_mhz, 0), text(own.power_w, 0), text(own.pj_per_operation, 3)]
        if own.unstable or library.unstable:
            compared = ["", "rounds disagree", ""]
        else:
            compared = [f"{ratio:.3f}", interval, verdict]
        cells += [name, tera(library), text(library.percent_of_peak, 1)]
        cells += [text(library.pj_per_operation, 3)]
        yield f"| {' | '.join([*cells, *compared])} |"
    emulated = [row for row in done if row.variant == EMULATED]
    if emulated:
        yield ""
        yield from head(["float64 emulated", "state", "Top/s", "how", "largest relative error"])
    for row in emulated:
        error = "" if row.max_relative_error is None else f"{row.max_relative_error:.2g}"
        yield f"| {row.size} | {row.state} | {tera(row)} | {row.algorithm} | {error} |"


def head(cells: Sequence[str]) -> Iterator[str]:
    """The first two lines of a table."""
    yield f"| {' | '.join(cells)} |"
    yield f"| {' | '.join('---' for _ in cells)} |"


def tera(row: Row) -> str:
    """10¹² operations a second."""
    return text(row.gflops and row.gflops / 1e3, 1)


def text(value: float | None, digits: int) -> str:
    """So many decimals, or nothing."""
    return "" if value is None else f"{value:.{digits}f}"


def part(problems: dict[str, str], dtypes: str | None, sizes: str | None) -> dict[str, str]:
    """Those of the dtypes and sizes, where they are given."""
    return {
        dtype: ",".join(kept)
        for dtype, listed in problems.items()
        if dtypes is None or dtype in dtypes.split(",")
        if (kept := [size for size in listed.split(",") if not sizes or size in sizes.split(",")])
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    what = parser.add_subparsers(dest="what", required=True)
    measuring = what.add_parser("measure")
    measuring.add_argument("suite", choices=SUITES)
    measuring.add_argument("--dtypes", help="only these of the suite's")
    measuring.add_argument("--sizes", help="only these of each dtype's")
    for command in (measuring, what.add_parser("table")):
        command.add_argument("csv", type=Path)
    arguments = parser.parse_args()
    if arguments.what == "measure":
        suite = SUITES[arguments.suite]
        problems = part(suite.problems, arguments.dtypes, arguments.sizes)
        measure(replace(suite, problems=problems), arguments.csv)
    else:
        print("\n".join(table(read(arguments.csv))))


if __name__ == "__main__":
    main()
