"""Measure published kernels that other people wrote, and compare their times with Nsight Compute's.

    git clone https://github.com/siboehm/SGEMM_CUDA /tmp/SGEMM_CUDA
    python benchmarks/foreign.py /tmp/SGEMM_CUDA results/h200/foreign

Needs a GPU, Nsight Compute, and the CUDA toolkit's headers for kernel 12. The script describes
kernels 1 to 12 as a user would, in a directory for `--kernels`. The launches are those of the
repository's `src/runner.cu`. It sweeps them beside cuBLAS at sizes that their tiles divide, where
each of them must be `ok`, and at a size that most tiles do not divide. There a kernel without
bounds checks must be `wrong`, `error` or refused, and every other kernel `ok`.

Nsight Compute runs before and after the sweep, so that a slow change of the clock affects the times
of both tools alike. Each run launches the kernels in one order and then in the reverse order.

It writes a .csv and a .md. Exit status: 0 all bounds hold, 1 one is broken, 3 one could not be
judged.
"""

from __future__ import annotations

import argparse
import csv
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from statistics import median
from time import perf_counter

from agreement import NCU_METRIC, find_ncu, parse_ncu
from shared import ROOT, SEED, child, markdown, sweep_kernels, verdict

from gpubench.engine.operands import make_inputs
from gpubench.errors import GpubenchError
from gpubench.model import Cache, Point, Problem, Scope, Status, Timer
from gpubench.plan.registry import of_op
from gpubench.results.row import Row

SIZES = (2048, 4096)
ODD_SIZE = 1000
NCU_LAUNCHES, WARM_UP_LAUNCHES = 5, 3
"""Number of launches of each kernel in a row that Nsight Compute times, and that precede them."""

LIMIT = 0.01
"""Largest relative difference from Nsight Compute's time."""

SWEEP_S, NCU_S = 150, 100
"""Time limits of a sweep and of Nsight Compute."""

TOOLKIT = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "include"

COMMON = (
    "int M, int N, int K, float alpha=1, const float* A, const float* B, float beta=0, float* C"
)
MUTABLE = COMMON.replace("const ", "")
"""The repository's two signatures."""


@dataclass(frozen=True, kw_only=True)
class Described:
    """What a user writes to describe a kernel of the repository."""

    file: str
    kernel: str
    grid: tuple[str, str]
    block: tuple[int, ...]
    signature: str = MUTABLE
    compile_options: tuple[str, ...] = ()
    checks_bounds: bool = False

    def text(self, folder: Path) -> str:
        """Return the description of the kernel, whose source is in `folder`."""
        return (
            "from gpubench.model import CudaVariant\n\n"
            "VARIANT = CudaVariant(\n"
            f"    idea={self.kernel!r},\n"
            f"    file={str(folder / self.file)!r},\n"
            f"    kernel={self.kernel!r},\n"
            f"    signature={self.signature!r},\n"
            '    dtypes=("float32",),\n'
            "    reads_output=True,\n"
            f"    grid={self.grid!r},\n"
            f"    block={self.block!r},\n"
            f"    compile_options={self.compile_options!r},\n"
            ")\n"
        )


def tiled(file: str, kernel: str, edge: int = 128, threads: int = 256, **more: object) -> Described:
    """Return the description of a kernel whose blocks compute `edge` × `edge` elements."""
    grid = (f"N/{edge}", f"M/{edge}")
    return Described(file=file, kernel=kernel, grid=grid, block=(threads,), **more)


KERNELS = (
    Described(
        file="1_naive.cuh", kernel="sgemm_naive", signature=COMMON, grid=("M/32", "N/32"),
        block=(32, 32), checks_bounds=True,
    ),
    Described(
        file="2_kernel_global_mem_coalesce.cuh", kernel="sgemm_global_mem_coalesce<32>",
        signature=COMMON, grid=("M/32", "N/32"), block=(1024,), checks_bounds=True,
    ),
    Described(
        file="3_kernel_shared_mem_blocking.cuh", kernel="sgemm_shared_mem_block<32>",
        signature=COMMON, grid=("M/32", "N/32"), block=(1024,),
    ),
    tiled("4_kernel_1D_blocktiling.cuh", "sgemm1DBlocktiling<64, 64, 8, 8>", 64, 512,
          signature=COMMON),
    tiled("5_kernel_2D_blocktiling.cuh", "sgemm2DBlocktiling<128, 128, 8, 8, 8>",
          signature=COMMON),
    tiled("6_kernel_vectorize.cuh", "sgemmVectorize<128, 128, 8, 8, 8>"),
    tiled("7_kernel_resolve_bank_conflicts.cuh", "sgemmResolveBankConflicts<128, 128, 8, 8, 8>"),
    tiled("8_kernel_bank_extra_col.cuh", "sgemmResolveBankExtraCol<128, 128, 8, 8, 8>"),
    tiled("9_kernel_autotuned.cuh", "sgemmAutotuned<128, 128, 16, 8, 8>"),
    tiled("10_kernel_warptiling.cuh", "sgemmWarptiling<128, 128, 16, 64, 64, 4, 4, 8, 128>",
          threads=128),
    Described(
        file="11_kernel_double_buffering.cuh", grid=("N/256", "M/128"), block=(256,),
        kernel="sgemmDoubleBuffering<128, 256, 16, 128, 32, 1, 8, 8, 256>",
        compile_options=("-DWARPSIZE=32",),  # the repository defines it in another file
    ),
    tiled("12_kernel_double_buffering.cuh", threads=128,
          kernel="runSgemmDoubleBuffering2<128, 128, 16, 64, 64, 4, 4, 8, 128>",
          compile_options=("-DWARPSIZE=32", f"-I{TOOLKIT}", f"-I{TOOLKIT / 'cccl'}")),
)  # fmt: skip
"""Kernels 1 to 12 with the template parameters and launches of `src/runner.cu`."""

BLAS = "cublas"


Times = dict[tuple[str, int], list[float]]
"""Microseconds of each launch, by variant and size."""


def name_of(number: int) -> str:
    """Return the variant's name of a kernel of the repository."""
    return f"sgemm_{number}"


def describe(checkout: Path, folder: Path) -> list[str]:
    """Write a description of each kernel into `folder`, and return the variants' names."""
    sources = checkout.resolve() / "src" / "kernels"
    for number, kernel in enumerate(KERNELS, 1):
        if not (sources / kernel.file).is_file():
            sys.exit(
                f"foreign.py: {checkout} is no checkout of SGEMM_CUDA: {kernel.file} is missing"
            )
        (folder / f"{name_of(number)}.py").write_text(kernel.text(sources), encoding="utf-8")
    return [name_of(number) for number in range(1, len(KERNELS) + 1)]


def sweep(
    folder: Path, names: Sequence[str], sizes: Sequence[int], rounds: int, output: Path
) -> list[Row]:
    """Sweep the kernels beside cuBLAS, hot, and return the rows."""
    return sweep_kernels(
        folder,
        (*names, BLAS),
        *("--sizes", ",".join(map(str, sizes)), "--dtypes", "float32"),
        *("--cache", "hot", "--rounds", str(rounds)),
        output=output,
        timeout_s=SWEEP_S,
    )


def launch(folder: Path) -> None:
    """Launch each kernel at each size, for Nsight Compute, on the operands of a sweep.

    The kernels run in one order, and then in the reverse order.
    """
    from cupy.cuda import runtime

    from gpubench.backends.cuda.backend import CudaBackend

    backend = CudaBackend(0)
    variants = of_op("gemm", folder)
    backend.warm_up()
    for size in SIZES:
        problem = Problem(op="gemm", m=size, n=size, k=size, dtype="float32")
        operands = backend.load(problem, make_inputs(problem, SEED), cold=False)
        numbers = range(1, len(KERNELS) + 1)
        for number in (*numbers, *reversed(numbers)):
            variant = variants[name_of(number)]
            point = Point(
                variant=variant,
                tile=variant.tiles.defaults[0] if variant.tiles else None,
                problem=problem,
                cache=Cache.HOT,
                scope=Scope.KERNEL,
                timer=Timer.EVENTS,
            )
            try:
                kernel = backend.bind(point, operands)
                kernel.run(WARM_UP_LAUNCHES)
            except Exception as error:  # the sweep reports it
                print(f"{variant.name} at {size}: {error}", file=sys.stderr)
                continue
            print(f"{variant.name} {size}", flush=True)
            runtime.profilerStart()
            kernel.run(NCU_LAUNCHES)
            runtime.profilerStop()


def by_ncu(folder: Path) -> tuple[Times, str]:
    """Return Nsight Compute's microseconds of each launch, and why they are missing."""
    with tempfile.TemporaryDirectory() as name:
        log = Path(name) / "ncu.csv"
        ended = child(
            (
                *(find_ncu(), "--log-file", log, "--metrics", NCU_METRIC, "--csv"),
                *("--page", "raw", "--print-units", "base", "--clock-control", "none"),
                *("--cache-control", "none", "--profile-from-start", "off"),
                *(sys.executable, __file__, "--launch", folder),
            ),
            timeout_s=NCU_S,
            err=subprocess.PIPE,
        )
        text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    launched = [line.split() for line in ended.out.splitlines() if line.startswith("sgemm_")]
    try:
        kernels = parse_ncu(text)
    except ValueError as error:
        return {}, f"{error}; {ended.last_line}"
    if len(kernels) != NCU_LAUNCHES * len(launched):
        return {}, f"{len(kernels)} kernels for {len(launched)} points"
    times: Times = defaultdict(list)
    for at, (name, size) in enumerate(launched):
        of_point = kernels[at * NCU_LAUNCHES : (at + 1) * NCU_LAUNCHES]
        times[name, int(size)] += [nanoseconds / 1e3 for _, nanoseconds in of_point]
    return times, ended.last_line if ended.code else ""


def try_ncu(folder: Path) -> tuple[Times, str]:
    """Return the times by Nsight Compute. If it cannot run, return no times, and the reason."""
    try:
        return by_ncu(folder)
    except (OSError, GpubenchError) as error:
        return {}, str(error)


def medians(runs: Sequence[Times]) -> dict[tuple[str, int], float]:
    """Return the median of each point's launches in all runs of Nsight Compute.

    A point that a run lacks is left out, because the runs before and after the sweep balance a slow
    change of the clock.
    """
    points = set.intersection(*map(set, runs))
    return {point: median(chain.from_iterable(run[point] for run in runs)) for point in points}


def report(rows: Sequence[Row], ncu: dict[tuple[str, int], float], why: str, prefix: Path) -> int:
    """Write the tables, print the verdicts, and return the exit status."""
    blas_us = {row.m: row.median_us for row in rows if row.variant == BLAS}
    lines = []
    for row in rows:
        ncu_us = ncu.get((row.variant, row.m))
        ratio = row.median_us / ncu_us if row.median_us and ncu_us else None
        blas = blas_us.get(row.m)
        percent = 100 * blas / row.median_us if row.median_us and blas else None
        lines.append(
            {
                "kernel": row.variant,
                "n": row.m,
                "status": row.status,
                "gpubench_us": f"{row.median_us:.2f}" if row.median_us else "",
                "ncu_us": f"{ncu_us:.2f}" if ncu_us else "",
                "ratio": f"{ratio:.4f}" if ratio else "",
                "percent_of_cublas": f"{percent:.1f}" if percent else "",
                "reason_or_note": row.reason or row.notes or "",
            }
        )
    with prefix.with_suffix(".csv").open("w", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(lines[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)
    at_sizes = [row for row in rows if row.m in SIZES]
    at_odd = [row for row in rows if row.m == ODD_SIZE]
    unchecked = {name_of(i) for i, kernel in enumerate(KERNELS, 1) if not kernel.checks_bounds}
    # A kernel without bounds checks can still be right at a size that its own tile divides.
    neighbours = [row for row in at_odd if row.variant not in unchecked]
    right = sum(row.status == Status.OK for row in at_sizes)
    ratios = [float(line["ratio"]) for line in lines if line["ratio"]]
    worst = max((abs(ratio - 1) for ratio in ratios), default=None)
    verdicts = [
        (
            right == len(at_sizes),
            f"{right} of {len(at_sizes)} points at {' and '.join(map(str, SIZES))} are ok",
        ),
        (
            all(row.status != Status.OK for row in at_odd if row.variant in unchecked),
            f"at {ODD_SIZE} no kernel without bounds checks is ok",
        ),
        (
            all(row.status == Status.OK for row in neighbours),
            f"at {ODD_SIZE} every other kernel is ok: {', '.join(x.variant for x in neighbours)}",
        ),
    ]
    if worst is not None:
        what = f"{len(ratios)} times are within {LIMIT:.0%} of Nsight Compute's, worst {worst:.2%}"
        verdicts.append((worst <= LIMIT, what))
    body = markdown([*lines[0]], [[*line.values()] for line in lines])
    text = [
        "# Kernels of SGEMM_CUDA, described as a user would",
        "",
        f"Made by `benchmarks/foreign.py` on {rows[0].device}. float32, hot.",
        "",
        *(f"- {'holds' if holds else 'FAILS'}: {what}" for holds, what in verdicts),
        *([f"- not judged: Nsight Compute: {why}"] if worst is None else []),
        "",
        body,
        "",
    ]
    prefix.with_suffix(".md").write_text("\n".join(text), encoding="utf-8")
    held = [verdict(holds, what) for holds, what in verdicts]
    if worst is None:
        print(f"not judged: Nsight Compute: {why}")
    return 1 if not all(held) else 3 if worst is None else 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", type=Path, help="a checkout of SGEMM_CUDA")
    parser.add_argument("prefix", type=Path, nargs="?", help="of the .csv and the .md",
                        default=ROOT / "results" / "h200" / "foreign")  # fmt: skip
    parser.add_argument("--rounds", type=int, default=3, help="of the sweep at even sizes")
    parser.add_argument("--launch", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--describe", type=Path, help="only write the descriptions, into a folder")
    chosen = parser.parse_args()
    if chosen.launch:
        launch(chosen.directory)
        return 0
    if chosen.describe:
        chosen.describe.mkdir(parents=True, exist_ok=True)
        describe(chosen.directory, chosen.describe)
        return 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "own"
        folder.mkdir()
        names = describe(chosen.directory, folder)
        started = perf_counter()
        before, why = try_ncu(folder)
        rows = sweep(folder, names, SIZES, chosen.rounds, Path(name) / "even.csv")
        after, why_after = try_ncu(folder)
        rows += sweep(folder, names, (ODD_SIZE,), 1, Path(name) / "odd.csv")
        print(f"measured in {perf_counter() - started:.0f} s", flush=True)
        return report(rows, medians((before, after)), why or why_after, chosen.prefix)


if __name__ == "__main__":
    sys.exit(main())
