"""Measure published kernels that other people wrote, and compare their times with Nsight Compute's.

    python benchmarks/foreign.py --compile CHECKOUTS
    python benchmarks/foreign.py CHECKOUTS results/h100/foreign.csv

CHECKOUTS is a folder with checkouts of the repositories in `REPOSITORIES`, under these names. No
source is edited. `gpubench new-kernel --from` describes each kernel, and at most `MAX_CHANGES`
lines of a description are changed. With `--compile` the script compiles all of them, without a GPU,
and lists the changed lines and the seconds.

Otherwise it needs a GPU and Nsight Compute. First it compiles the kernels. Then it sweeps them
beside cuBLAS at sizes that their tiles divide, each in the first of its types: the kernels of
`TIMED`, those in half precision, and the others, until `--seconds` are over. After the first of
these sweeps, Nsight Compute times the kernels of `TIMED`, in one order and in the reverse order, so
that a slow change of the clock affects all of them alike.

It writes a .csv, where points of earlier runs stay unless they were measured again. Exit status: 0
all bounds hold, 1 one is broken, 3 one could not be judged.
"""

import argparse
import contextlib
import csv
import io
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from operator import ne
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from profilers import ncu_command, parse_ncu
from shared import ROOT, SEED, child, kernel_point, markdown, sweep_kernels, verdict

from gpubench.backends.cuda.compile import compile_instance, compile_library, named
from gpubench.commands.new_kernel.run import describe_source
from gpubench.engine.operands import make_inputs
from gpubench.errors import CompileError, GpubenchError
from gpubench.hardware.host import cpu_threads
from gpubench.model import (
    CudaVariant,
    HostVariant,
    Problem,
    Status,
    Variant,
)
from gpubench.plan.registry import of_op
from gpubench.results.row import Row

SIZES = (2048, 4096)
NCU_LAUNCHES, WARM_UP_LAUNCHES = 5, 3
"""Number of launches of each kernel in a row that Nsight Compute times, and that precede them."""

LIMIT = 0.01
"""Largest relative difference from Nsight Compute's time."""

NCU_S, MIN_SWEEP_S = 60, 10
"""Time limit of Nsight Compute, and of a sweep for which no time is left."""

LAUNCH_LIMIT_S = 0.1
"""Kernels whose launches take longer are skipped."""

TIMED = (
    *("sgemm_5", "sgemm_6", "sgemm_10", "sgemm_11", "leimao_04_vectorized", "leimao_06_vectorized"),
    *("salykova_2", "practice_5", "practice_7", "wilde_2", "wilde_3", "xgemm_6", "llmc_4"),
)
"""Kernels in float32 that Nsight Compute times too. Each launches one kernel a call."""

MAX_CHANGES = 3
"""Maximum number of lines of a description that are changed."""

REPOSITORIES = {
    "SGEMM_CUDA": "https://github.com/siboehm/SGEMM_CUDA",
    "CUDA-GEMM-Optimization": "https://github.com/leimao/CUDA-GEMM-Optimization",
    "sgemm.cu": "https://github.com/salykova/sgemm.cu",
    "NVIDIA_SGEMM_PRACTICE": "https://github.com/wangzyon/NVIDIA_SGEMM_PRACTICE",
    "cuda-sgemm": "https://github.com/nicolaswilde/cuda-sgemm",
    "xGeMM": "https://github.com/tgautam03/xGeMM",
    "llm.c": "https://github.com/karpathy/llm.c",
    "fast.cu": "https://github.com/pranjalssh/fast.cu",
}


@dataclass(frozen=True, kw_only=True)
class Foreign:
    """A kernel of a repository, and the lines that a user changes in its description."""

    file: str
    """Path in CHECKOUTS."""

    function: str = ""
    """What `--kernel` gets. Empty: the first function that launches kernels."""

    changes: tuple[tuple[str, str], ...] = ()
    """Parts of lines, and what replaces them."""


def _numbered(prefix: str, file: str, functions: str, **facts: Any) -> dict[str, Foreign]:
    """Return kernels by names with a number, which begins with 1."""
    listed = enumerate(functions.split(), 1)
    return {f"{prefix}_{i}": Foreign(file=file, function=name, **facts) for i, name in listed}


LEIMAO = "CUDA-GEMM-Optimization/src/"
FORMS = {
    "00_non_coalesced_global_memory_access": "leimao_00",
    "01_coalesced_global_memory_access": "leimao_01",
    "02_2d_block_tiling": "leimao_02",
    "03_2d_block_tiling_1d_thread_tiling": "leimao_03",
    "04_2d_block_tiling_2d_thread_tiling": "leimao_04",
    "05_2d_block_tiling_2d_thread_tiling_matrix_transpose": "leimao_05",
    "06_2d_block_tiling_2d_warp_tiling_2d_thread_tiling_matrix_transpose": "leimao_06",
    "07_2d_block_tiling_2d_warp_tiling_2d_thread_tiling_matrix_transpose_wmma": "leimao_07",
}
VECTORIZED = "_vectorized_memory_access"

KERNELS = {
    **_numbered(
        "sgemm", "SGEMM_CUDA/src/runner.cu",
        "run_sgemm_naive run_sgemm_coalesce run_sgemm_shared_mem_block runSgemm1DBlocktiling "
        "runSgemm2DBlocktiling runSgemmVectorize runSgemmResolveBankConflicts "
        "runSgemmResolveBankExtraCol runSgemmAutotuned runSgemmWarptiling "
        "runSgemmDoubleBuffering runSgemmDoubleBuffering2",
    ),
    **{name: Foreign(file=f"{LEIMAO}{form}.cu") for form, name in FORMS.items()},
    **{
        f"{name}_vectorized": Foreign(file=f"{LEIMAO}{form}{VECTORIZED}.cu")
        for form, name in FORMS.items()
        if name >= "leimao_02"
    },
    **{
        f"{name}_double_buffered": Foreign(file=f"{LEIMAO}{form}{VECTORIZED}_double_buffered.cu")
        for form, name in FORMS.items()
        if name >= "leimao_06"
    },
    **_numbered(
        "salykova", "sgemm.cu/src/sgemm.cuh", "sgemm sgemm_basic",
        changes=(('common",)', 'common", "-DGPUCC=90")'),),
    ),
    **_numbered(
        "practice", "NVIDIA_SGEMM_PRACTICE/src/utils.cu",
        " ".join(f"test_mysgemm_v{number}" for number in range(1, 8)),
    ),
    **_numbered(
        "wilde", "cuda-sgemm/sgemm.cu", "mySgemmV1Aligned mySgemmV2Aligned mySgemmV3Aligned",
        changes=(("N/32", "N/128"), ("M/32", "M/128"), ("block=(32, 32)", "block=(16, 16)")),
    ),
    **{
        f"xgemm_{number}": Foreign(file=f"xGeMM/src/0{number}_{form}_xgemm.cu")
        for number, form in enumerate(
            ("naive", "coalesced", "tiled", "coarse_1d", "coarse_2d", "coarse_2d_vec"), 1
        )
    },
    "llmc_1": Foreign(file="llm.c/dev/cuda/matmul_forward.cu", function="matmul_forward1"),
    "llmc_4": Foreign(file="llm.c/dev/cuda/matmul_forward.cu", function="matmul_forward4"),
    "fast_1": Foreign(
        file="fast.cu/matmul.cu", function="runKernel1",
        changes=(("dtypes=", 'compile_options=("-DNDEBUG",), dtypes='),),
    ),
}  # fmt: skip
"""Kernels by the names of their variants. The other kernels of fast.cu keep the addresses of their
first call."""

BLAS = "cublas"


At = tuple[str, int, str]
"""A variant's name, a size and a dtype."""

Times = dict[At, list[float]]
"""Microseconds of each launch."""


def describe(checkouts: Path, folder: Path, names: Sequence[str]) -> dict[str, int]:
    """Describe kernels as a user would; return the number of changed lines of each.

    `gpubench new-kernel` writes the descriptions into `folder`/gemm.
    """
    changed: dict[str, int] = {}
    for name in names:
        kernel = KERNELS[name]
        source = checkouts.resolve() / kernel.file
        if not source.is_file():
            url = REPOSITORIES[kernel.file.partition("/")[0]]
            sys.exit(f"foreign.py: {source} is missing: clone {url} into {checkouts}")
        with contextlib.redirect_stdout(io.StringIO()):
            describe_source(name, "gemm", source, folder, kernel=kernel.function, force=True)
        path = folder / "gemm" / f"{name}.py"
        lines = path.read_text(encoding="utf-8").splitlines()
        edited = list(lines)
        for old, new in kernel.changes:
            edited = [line.replace(old, new) for line in edited]
        changed[name] = sum(map(ne, lines, edited))
        path.write_text("\n".join((*edited, "")), encoding="utf-8")
    return changed


def compile_all(folder: Path, changed: dict[str, int], architecture: str) -> int:
    """Compile the kernels, print a table and the verdicts, and return the exit status."""
    variants = of_op("gemm", folder)
    with ThreadPoolExecutor(cpu_threads()) as pool:
        results = pool.map(lambda name: compile_one(variants[name], architecture), changed)
    lines = [
        [name, KERNELS[name].file, *map(str, (count, *result))]
        for (name, count), result in zip(changed.items(), results, strict=True)
    ]
    print(markdown(["kernel", "file", "changed lines", "function", "compiled"], lines))
    failed = [line[0] for line in lines if line[-1].startswith("FAILS")]
    repositories = {line[1].partition("/")[0] for line in lines}
    held = [
        verdict(not failed, f"{len(lines) - len(failed)} of {len(lines)} kernels compile"),
        verdict(max(changed.values()) <= MAX_CHANGES,
                f"at most {max(changed.values())} lines of a description are changed"),
        verdict(repositories == REPOSITORIES.keys(), f"{len(repositories)} repositories"),
    ]  # fmt: skip
    return int(not all(held))


def compile_one(variant: Variant, architecture: str) -> tuple[str, str]:
    """Return the name of a variant's function, and how long its compilation took, or its error."""
    started, dtype, what = perf_counter(), variant.dtypes[0], variant.idea
    try:
        if isinstance(variant, HostVariant):
            what = variant.function(None, dtype)
            compile_library(variant, None, dtype, architecture)
        elif isinstance(variant, CudaVariant):
            tile = variant.tiles.defaults[0]
            what, options = variant.instance(tile, dtype), variant.options(tile, dtype)
            compile_instance(variant.source, what, architecture, options)
        else:
            return what, "FAILS: it cannot be described"
    except CompileError as error:
        return named(what), f"FAILS: {error}"
    return named(what), f"{perf_counter() - started:.1f} s"


def sweep(folder: Path, names: Sequence[str], rounds: int, timeout_s: float) -> list[Row]:
    """Sweep the kernels beside cuBLAS, hot, and return the rows until the time limit."""
    variants = of_op("gemm", folder)
    dtypes = dict.fromkeys(variants[name].dtypes[0] for name in names)
    return sweep_kernels(
        folder,
        (*names, BLAS),
        *("--sizes", ",".join(map(str, SIZES)), "--dtypes", ",".join(dtypes)),
        *("--cache", "hot", "--rounds", str(rounds), "--launch-limit", str(LAUNCH_LIMIT_S)),
        output=folder / f"{names[0]}.csv",
        timeout_s=timeout_s,
    )


def measure(
    folder: Path, names: Sequence[str], rounds: int, seconds: float
) -> tuple[list[Row], dict[At, float], str]:
    """Return the rows, Nsight Compute's times, and why times are missing."""
    end_s = perf_counter() + seconds
    variants = of_op("gemm", folder)
    timed = [name for name in names if name in TIMED]
    half = [name for name in names if "float32" not in variants[name].dtypes]
    rest = [name for name in names if name not in {*timed, *half}]
    rows = sweep(folder, timed, rounds, end_s - perf_counter() - NCU_S) if timed else []
    ncu, why = try_ncu(folder) if timed else ({}, "none of its kernels is listed")
    for group in filter(None, (half, rest)):
        rows += sweep(folder, group, rounds, max(MIN_SWEEP_S, end_s - perf_counter()))
    return rows, {at: median(times) for at, times in ncu.items()}, why


def launch(folder: Path) -> None:
    """Launch each kernel at each size, for Nsight Compute, on the operands of a sweep.

    The kernels run in one order, and then in the reverse order.
    """
    from cupy.cuda import runtime

    from gpubench.backends.cuda.backend import CudaBackend

    backend = CudaBackend(0)
    variants = of_op("gemm", folder)
    names = [name for name in TIMED if name in variants]
    load = cache(lambda problem: backend.load(problem, make_inputs(problem, SEED), cold=False))
    backend.warm_up()
    for size in SIZES:
        for name in (*names, *reversed(names)):
            variant = variants[name]
            problem = Problem(
                op="gemm", m=size, n=size, k=size, dtype=variant.dtypes[0],
                column_major=variant.column_major,
            )  # fmt: skip
            tile = variant.tiles.defaults[0] if variant.tiles else None
            try:
                kernel = backend.bind(kernel_point(variant, tile, problem), load(problem))
                kernel.run(WARM_UP_LAUNCHES)
            except Exception as error:  # the sweep reports it
                print(f"{variant.name} at {size}: {error}", file=sys.stderr)
                continue
            print(f"{variant.name} {size} {problem.dtype}", flush=True)
            runtime.profilerStart()
            kernel.run(NCU_LAUNCHES)
            runtime.profilerStop()


def by_ncu(folder: Path) -> tuple[Times, str]:
    """Return Nsight Compute's microseconds of each launch, and why they are missing."""
    with tempfile.TemporaryDirectory() as name:
        log = Path(name) / "ncu.csv"
        ended = child(
            (*(*ncu_command(log, "none"), sys.executable, __file__, "--launch", folder),),
            timeout_s=NCU_S,
            err=subprocess.PIPE,
        )
        text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    launched = [
        line.split() for line in ended.out.splitlines() if line.partition(" ")[0] in KERNELS
    ]
    try:
        kernels = parse_ncu(text)
    except ValueError as error:
        return {}, f"{error}; {ended.last_line}"
    if len(kernels) != NCU_LAUNCHES * len(launched):
        return {}, f"{len(kernels)} kernels for {len(launched)} points"
    times: Times = defaultdict(list)
    for at, (name, size, dtype) in enumerate(launched):
        of_point = kernels[at * NCU_LAUNCHES : (at + 1) * NCU_LAUNCHES]
        times[name, int(size), dtype] += [nanoseconds / 1e3 for _, nanoseconds in of_point]
    return times, ended.last_line if ended.code else ""


def try_ncu(folder: Path) -> tuple[Times, str]:
    """Return the times by Nsight Compute. If it cannot run, return no times, and the reason."""
    try:
        return by_ncu(folder)
    except (OSError, GpubenchError) as error:
        return {}, str(error)


def report(rows: Sequence[Row], ncu: dict[At, float], why: str, path: Path) -> int:
    """Write the file, print the verdicts, and return the exit status."""
    points = {(row.variant, str(row.m), row.dtype) for row in rows}
    blas_us = {(row.m, row.dtype, row.layout): row.median_us for row in rows if row.variant == BLAS}
    lines = []
    for row in {row.key: row for row in rows}.values():
        ncu_us = ncu.get((row.variant, row.m, row.dtype))
        ratio = row.median_us / ncu_us if row.median_us and ncu_us else None
        blas = blas_us.get((row.m, row.dtype, row.layout))
        percent = 100 * blas / row.median_us if row.median_us and blas else None
        lines.append(
            {
                "kernel": row.variant,
                "n": str(row.m),
                "dtype": row.dtype,
                "status": row.status,
                "gpubench_us": f"{row.median_us:.2f}" if row.median_us else "",
                "ncu_us": f"{ncu_us:.2f}" if ncu_us else "",
                "ratio": f"{ratio:.4f}" if ratio else "",
                "percent_of_cublas": f"{percent:.1f}" if percent else "",
                "reason_or_note": row.reason or row.notes or "",
            }
        )
    kept = []
    if path.exists():
        with path.open(encoding="utf-8") as file:
            kept = [
                line
                for line in csv.DictReader(file)
                if (line["kernel"], line["n"], line["dtype"]) not in points
            ]
    with path.open("w", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(lines[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows([*kept, *lines])
    measured = [row for row in rows if row.status != Status.SKIPPED]
    right = sum(row.status == Status.OK for row in measured)
    ratios = [float(line["ratio"]) for line in lines if line["ratio"]]
    worst = max((abs(ratio - 1) for ratio in ratios), default=None)
    verdicts = [
        (
            right == len(measured),
            f"{right} of {len(measured)} points at {' and '.join(map(str, SIZES))} are ok",
        ),
    ]
    if worst is not None:
        what = f"{len(ratios)} times are within {LIMIT:.0%} of Nsight Compute's, worst {worst:.2%}"
        verdicts.append((worst <= LIMIT, what))
    held = [verdict(holds, what) for holds, what in verdicts]
    if worst is None:
        print(f"not judged: Nsight Compute: {why}")
    return 1 if not all(held) else 3 if worst is None else 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkouts", type=Path, help="a folder with checkouts of the repositories")
    parser.add_argument("output", type=Path, nargs="?", help="the .csv",
                        default=ROOT / "results" / "h100" / "foreign.csv")  # fmt: skip
    parser.add_argument("--rounds", type=int, default=1, help="of the sweeps")
    parser.add_argument("--seconds", type=float, default=600, help="after the compilation")
    parser.add_argument("--only", default=",".join(KERNELS), help="names of kernels, by commas")
    parser.add_argument("--compile", action="store_true", help="only describe and compile")
    parser.add_argument("--arch", default="sm_90", help="for --compile")
    parser.add_argument("--launch", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--describe", type=Path, help="only write the descriptions, into a folder")
    chosen = parser.parse_args()
    if chosen.launch:
        launch(chosen.checkouts)
        return 0
    with tempfile.TemporaryDirectory() as name:
        folder = chosen.describe or Path(name) / "own"
        changed = describe(chosen.checkouts, folder, chosen.only.split(","))
        if chosen.describe:
            return 0
        started = perf_counter()
        code = compile_all(folder, changed, chosen.arch)  # all at once, into the user's cache
        print(f"compiled in {perf_counter() - started:.0f} s", flush=True)
        if chosen.compile:
            return code
        rows, ncu, why = measure(folder, [*changed], chosen.rounds, chosen.seconds)
        return report(rows, ncu, why, chosen.output)


if __name__ == "__main__":
    sys.exit(main())
