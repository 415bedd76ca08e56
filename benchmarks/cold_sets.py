"""How many caches of other operand sets make a set cold.

    python benchmarks/cold_sets.py > results/h200/cold_sets.md

Operands rotate among sets; before one is used again, the others have passed through the last-level
cache. For several amounts of them: the time per launch, and by Nsight Compute the bytes that a call
reads from DRAM relative to those of its operands, and the durations of the
call's kernels, with nothing flushed; in the last line of a kernel with caches flushed before each
of its kernels (`--cache-control all`). Each metric has a run of its own, so that Nsight Compute
needs one pass and replays nothing. Takes a minute.
"""

from __future__ import annotations

import csv
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import islice
from pathlib import Path

import cupy
from agreement_readings import find_ncu

from gpubench.backends import rotation
from gpubench.backends.cuda.backend import CudaBackend, CudaKernel
from gpubench.measure.operands import make_inputs
from gpubench.model import Cache, Point, Problem, Scope, Timer
from gpubench.plan.registry import choose

KERNELS = (
    *(("gemm", "shared_tile", "16", 256), ("gemm", "shared_tile", "16", 1024)),
    *(("gemm", "cublas", "", 256), ("gemm", "cublas", "", 512), ("gemm", "cublas", "", 1024)),
    ("gemv", "cublas", "", 2048),
)
CACHES = (Fraction(1, 2), Fraction(1), Fraction(2), Fraction(3), Fraction(4))
CALLS, SAMPLES = 5, 40
DRAM, DURATION = "dram__bytes_read.sum", "gpu__time_duration.sum"
MARKER = "blocking_kernel"
"""Launched before each kernel's calls, to find them in Nsight Compute's list."""


class ManySets(CudaBackend):
    """Holds as many sets as it takes, and flushes nothing."""

    def _policy(self, problem: Problem, *, cold: bool) -> rotation.SetPolicy:
        return rotation.set_policy(problem, self.device.l2_bytes, cold=cold, max_sets=10_000)


def kernels(caches: Sequence[Fraction]) -> Iterator[tuple[CudaBackend, CudaKernel, int, Fraction]]:
    """Every kernel with every amount of other sets, after two turns through them."""
    backend = ManySets(0)
    backend.warm_up()
    for op, name, tile, size in KERNELS:
        problem = Problem(op=op, m=size, n=size, k=size if op == "gemm" else 1, dtype="float32")
        (variant,) = choose(op, "cuda", [name])
        for share in caches:
            rotation.CACHES_TO_OUTGROW = share
            operands = backend.load(problem, make_inputs(problem, 2006), cold=True)
            point = Point(
                variant=variant,
                tile=variant.tiles.read(tile) if variant.tiles else None,
                problem=problem,
                cache=Cache.COLD,
                scope=Scope.KERNEL,
                timer=Timer.EVENTS,
            )
            kernel = backend.bind(point, operands)
            for launch in islice(kernel.rotation, 2 * operands.policy.count):
                launch()
            backend.stream.synchronize()
            yield backend, kernel, operands.policy.count, share


def launch_for_ncu(caches: Sequence[Fraction]) -> None:
    """Launches for Nsight Compute to count."""
    for backend, kernel, _, _ in kernels(caches):
        cupy.cuda.runtime.profilerStart()
        backend.stream.launch_empty()
        for launch in islice(kernel.rotation, CALLS):
            launch()
        backend.stream.synchronize()
        cupy.cuda.runtime.profilerStop()


def by_ncu(metric: str, control: str, caches: Sequence[Fraction]) -> list[list[float]]:
    """The metric of each kernel of a call, its median over calls, in the order of `kernels`."""
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory) / "ncu.csv"
        subprocess.run(
            [
                *(find_ncu(), "--csv", "--page", "raw", "--print-units", "base"),
                *("--metrics", metric, "--cache-control", control, "--clock-control", "none"),
                *("--profile-from-start", "off", "--log-file", str(log)),
                *(sys.executable, __file__, "launch", *map(str, caches)),
            ],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        lines = [line for line in log.read_text().splitlines() if line.startswith('"')]
    calls: list[list[float]] = []
    for line in csv.DictReader(lines):
        if not line["ID"]:  # the line of units
            continue
        if MARKER in line["Kernel Name"]:
            calls.append([])
        else:
            calls[-1].append(float(line[metric].replace(",", "")))
    return [
        [
            statistics.median(values[kernel :: len(values) // CALLS])
            for kernel in range(len(values) // CALLS)
        ]
        for values in calls
    ]


def main() -> int:
    if len(sys.argv) > 1:
        launch_for_ncu([Fraction(text) for text in sys.argv[2:]])
        return 0
    read = iter(by_ncu(DRAM, "none", CACHES))
    took = iter(by_ncu(DURATION, "none", CACHES))
    flushed = iter(by_ncu(DURATION, "all", CACHES[-1:]))
    rows, name = [], ""
    for backend, kernel, sets, share in kernels(CACHES):
        op, variant, tile, size = KERNELS[len(rows) // len(CACHES)]
        inputs = size * size * (2 if op == "gemm" else 1) * 4 + (0 if op == "gemm" else size * 4)
        times = backend.sample(kernel, 16, SAMPLES)
        name = f"{op} {variant} {tile}".strip() + f" at {size}"
        rows.append(
            f"| {name} | {float(share):g} | {sets} | {statistics.median(times):.2f} "
            f"| {sum(next(read)) / inputs:.3f} | {durations(next(took))} | "
            + (f"{durations(next(flushed))} |" if share == CACHES[-1] else "|")
        )
    print(f"# Other sets that make a set cold, on an {backend.device.name}\n")
    print(f"An L2 of {backend.device.l2_bytes / 1e6:.0f} MB, float32.\n")
    print(
        "| kernel | other sets, in caches | sets | gpubench, µs | DRAM reads over operands "
        "| Nsight Compute, µs | flushed before each kernel, µs |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- |")
    print("\n".join(rows))
    return 0


def durations(nanoseconds: Sequence[float]) -> str:
    """`5.73 + 3.33 = 9.06`, in microseconds."""
    total = f"{sum(nanoseconds) / 1e3:.2f}"
    each = " + ".join(f"{one / 1e3:.2f}" for one in nanoseconds)
    return f"{each} = {total}" if len(nanoseconds) > 1 else total


if __name__ == "__main__":
    sys.exit(main())
