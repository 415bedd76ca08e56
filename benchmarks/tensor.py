"""Tensor cores in 16 bits beside cuBLAS, in short visits and in long runs.

    python benchmarks/tensor.py measure results/h200/tensor.csv                 # about 12 minutes
    python benchmarks/tensor.py table results/h200/tensor.csv > results/h200/tensor.md

`measure` sweeps every step of the ladder at its default tiles in burst state. Then the `FINALISTS`
fastest of each problem run sustained, interleaved with cuBLAS and the tuned cuBLASLt.

`table` compares the fastest step with the faster library. The ratio is that of the medians; its
95 % interval is Student's, from the logarithms of the ratios of the rounds, which are interleaved.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

from scipy import stats

from gpubench.measure.session import Watcher, run
from gpubench.measure.worker import Worker
from gpubench.model import Point, State, Status
from gpubench.options import read_sweep
from gpubench.row import Row, read, write
from gpubench.view.tables import by_problem

STEPS = (
    *("mma_sync", "wgmma", "wgmma_ring", "wgmma_persistent"),
    *("wgmma_cluster", "wgmma_deferred", "wgmma_mixed"),
)
LIBRARIES = ("cublas", "cublaslt")
PROBLEMS = {
    "bfloat16": "1024,2048,4000x4104x3992,4096,8192,16384",
    "float16": "4096,8192",
}
FINALISTS = 4

ASKED = {
    ("bfloat16", "1024"): 1.1,
    ("bfloat16", "2048"): 1.01,
    ("bfloat16", "4096"): 1.03,
    ("bfloat16", "8192"): 1.03,
    ("bfloat16", "16384"): 1.01,
    ("bfloat16", "4000x4104x3992"): 1.02,
    ("float16", "4096"): 1.02,
    ("float16", "8192"): 1.02,
}
"""Of the sustained ratio, before it was measured; met if the interval reaches it."""


def measure(path: Path) -> None:
    """Write the rows of both states."""
    rows: list[Row] = []
    with Worker("cuda", read_sweep({}).timer) as worker:
        for dtype, sizes in PROBLEMS.items():
            asked = {"dtypes": dtype, "sizes": sizes, "variants": ",".join((*STEPS, *LIBRARIES))}
            burst = run(read_sweep(asked), worker, Watcher()).rows
            best = {key for of_problem in by_problem(burst) for key in finalists(of_problem)}

            def wanted(point: Point, best: set[tuple[str, str, str]] = best) -> bool:
                name, size = point.variant.name, point.problem.size
                return name in LIBRARIES or (size, name, str(point.tile)) in best

            sustained = read_sweep(asked | {"state": "sustained"})
            rows += [*burst, *run(sustained, worker, Watcher(), wanted=wanted).rows]
            write(rows, path)


def finalists(rows: Sequence[Row]) -> set[tuple[str, str, str]]:
    """Size, step and tile of the fastest in one problem."""
    steps = [row for row in rows if row.variant in STEPS and row.median_us]
    steps.sort(key=lambda row: row.median_us or math.inf)
    return {(row.size, row.variant, row.tile) for row in steps[:FINALISTS]}


def table(rows: Sequence[Row]) -> Iterator[str]:
    """Markdown: a line a problem and state."""
    headings = ["dtype", "size", "state", "fastest step", "TFLOP/s", "% of peak", "% at clock"]
    headings += ["MHz", "W", "pJ/op", "library", "TFLOP/s", "ratio", "95 % interval", "asked"]
    yield f"| {' | '.join(headings)} |"
    yield f"| {' | '.join('---' for _ in headings)} |"
    for of_problem in by_problem(row for row in rows if row.status == Status.OK):
        times = sorted(of_problem, key=lambda row: row.median_us or math.inf)
        own = next(row for row in times if row.variant in STEPS)
        library = next(row for row in times if row.variant in LIBRARIES)
        ratio, low, high = ratio_of(own, library)
        asked = ASKED.get((own.dtype, own.size)) if own.state == State.SUSTAINED else None
        verdict = f"≥ {asked}: {'met' if high >= asked else 'missed'}" if asked else ""
        cells = [own.dtype, own.size, own.state, f"{own.variant} {own.tile}", tera(own)]
        cells += [text(own.percent_of_peak, 1), text(own.percent_of_peak_at_clock, 1)]
        cells += [text(own.sm_mhz, 0), text(own.power_w, 0), text(own.pj_per_operation, 3)]
        if own.unstable or library.unstable:
            compared = ["", "rounds disagree", ""]
        else:
            compared = [f"{ratio:.3f}", f"{low:.3f} to {high:.3f}", verdict]
        yield f"| {' | '.join([*cells, library.variant, tera(library), *compared])} |"


def ratio_of(own: Row, library: Row) -> tuple[float, float, float]:
    """How many times as fast, with its interval."""
    pairs = zip(rounds(library), rounds(own), strict=True)
    logs = [math.log(theirs / ours) for theirs, ours in pairs]
    half = math.inf
    if len(logs) > 1:
        error = statistics.stdev(logs) / math.sqrt(len(logs))
        half = error * float(stats.t.ppf(0.975, len(logs) - 1))
    middle = statistics.mean(logs)
    ratio = (library.median_us or math.nan) / (own.median_us or math.nan)
    return ratio, math.exp(middle - half), math.exp(middle + half)


def rounds(row: Row) -> list[float]:
    """Medians of the rounds, in microseconds."""
    return [float(text) for text in (row.round_medians_us or "").split(";")]


def tera(row: Row) -> str:
    """10¹² operations a second."""
    return text(row.gflops and row.gflops / 1e3, 1)


def text(value: float | None, digits: int) -> str:
    """So many decimals, or nothing."""
    return "" if value is None else f"{value:.{digits}f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=("measure", "table"))
    parser.add_argument("csv", type=Path)
    arguments = parser.parse_args()
    if arguments.what == "measure":
        measure(arguments.csv)
    else:
        print("\n".join(table(read(arguments.csv))))


if __name__ == "__main__":
    main()
