"""Compare the accesses that `explain` counts on the CPU with Nsight Compute's counters.

    python benchmarks/accesses.py measure accesses.csv     # needs a GPU and Nsight Compute
    python benchmarks/accesses.py table accesses.csv       # needs g++

Ten kernels of gpubench and five in the style of other projects are launched once each. A kernel
agrees if its sectors per request to global memory are within 5 % of the counters, for loads and for
stores. Wavefronts per request to shared memory are listed beside them. nvcc merges some loads from
shared memory into wider ones, so these are not judged.

`table` prints Markdown and exits with 1 if more than two kernels disagree.
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from profilers import ncu_command, ncu_rows
from shared import ROOT, bound, child, markdown

from gpubench.hardware.architectures import DEFAULT, example
from gpubench.kernel_options import find_kernel
from gpubench.model import Cache, CudaVariant, Point, Problem, Scope, Timer
from gpubench.on_cpu.accesses import Access, record

FOREIGN = ROOT / "tests" / "on_cpu" / "kernels"
LIMIT, NEEDED = 0.05, 13
TIMEOUT_S = 100

COUNTERS = {
    "load_sectors": "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio",
    "store_sectors": "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_st.ratio",
    "shared_loads": "smsp__inst_executed_op_shared_ld.sum",
    "shared_stores": "smsp__inst_executed_op_shared_st.sum",
    "load_wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "store_wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
    "load_conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    "store_conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
}
"""Columns of the file, and the counters that fill them."""


class Case(NamedTuple):
    """A kernel at a square size, in float32."""

    op: str
    variant: str
    tile: str
    n: int = 512

    @property
    def kernel(self) -> CudaVariant:
        """The kernel, gpubench's own or one of the tests."""
        folder = FOREIGN if self.variant.startswith("foreign") else None
        return find_kernel(self.variant, self.op, folder, "accesses.py")

    @property
    def problem(self) -> Problem:
        """The problem at the size."""
        k = self.n if self.op == "gemm" else 1
        return Problem(op=self.op, m=self.n, n=self.n, k=k, dtype="float32")


CASES = (
    Case("gemm", "naive", "32"),
    Case("gemm", "naive_uncoalesced", "32"),
    Case("gemm", "shared_tile", "32"),
    Case("gemm", "blocktile_1d", "64x64x8/8x1"),
    Case("gemm", "blocktile_2d", "64x64x8/4x4"),
    Case("gemm", "vectorized", "128x128x8/8x8"),
    Case("gemm", "warptile", "128x128x8/8x8"),
    Case("gemm", "register_tile", "8"),
    Case("gemv", "gemv_thread", "128"),
    Case("gemv", "gemv_warp", "128x4"),
    Case("gemm", "foreign_products", "1/kernel=mysgemm_v1"),
    Case("gemm", "foreign_products", "1/kernel=mysgemm_float2"),
    Case("gemm", "foreign_products", "1/kernel=mysgemm_tiled"),
    Case("gemm", "foreign_products", "1/kernel=mysgemm_v7"),
    Case("gemv", "foreign_vectors", "1/kernel=matvec_strips"),
)


def launch(launched: Path) -> None:
    """Launch each case once for Nsight Compute, and write which ones were launched."""
    import cupy

    from gpubench.backends.cuda.backend import CudaBackend

    backend = CudaBackend(0)
    done = []
    for case in CASES:
        kernel = case.kernel
        what = Point(
            variant=kernel, tile=kernel.tiles.read(case.tile), problem=case.problem,
            cache=Cache.HOT, scope=Scope.KERNEL, timer=Timer.EVENTS,
        )  # fmt: skip
        try:
            call = next(bound(backend, what).rotation)
            cupy.cuda.get_current_stream().synchronize()
            cupy.cuda.runtime.profilerStart()
            call()
            backend.timers.stream.synchronize()
            cupy.cuda.runtime.profilerStop()
        except Exception as error:  # loses one case
            print(f"{case}: {type(error).__name__}: {error}", file=sys.stderr)
        else:
            done.append(case)
    launched.write_text(json.dumps(done))


def measure(path: Path) -> int:
    """Write the counters of every case."""
    with tempfile.TemporaryDirectory() as folder:
        log, launched = Path(folder) / "ncu.csv", Path(folder) / "launched.json"
        command = ncu_command(log, "none", ",".join(COUNTERS.values()))
        ended = child(
            (*command, sys.executable, __file__, "launch", launched),
            timeout_s=TIMEOUT_S, out=subprocess.PIPE, err=subprocess.PIPE,
        )  # fmt: skip
        text = log.read_text(errors="replace") if log.exists() else ""
        print(ended.out[-500:], ended.err[-2000:], sep="\n", file=sys.stderr)
        try:
            _, *kernels = ncu_rows(text)
            done = [Case(*case) for case in json.loads(launched.read_text())]
        except (OSError, ValueError) as error:
            sys.exit(f"accesses.py: {error}: {text[-1000:]}")
    with path.open("w", encoding="utf-8", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow([*Case._fields, "kernel", *COUNTERS])
        for case, row in zip(done, kernels, strict=True):
            figures = (row[counter].replace(",", "") for counter in COUNTERS.values())
            out.writerow([*case, row["Kernel Name"], *figures])
    return 0


def average(lines: Sequence[Access], figure: str) -> float | None:
    """Return the average of a figure over the requests of lines. None without requests."""
    requests = sum(line.requests for line in lines)
    if not requests:
        return None
    return sum(line.requests * float(getattr(line, figure)) for line in lines) / requests


def ratio(row: Mapping[str, str], above: str, below: str) -> float | None:
    """Return a ratio of two counters. None if the lower one is 0."""
    return float(row[above]) / float(row[below]) if float(row[below]) else None


class Pair(NamedTuple):
    """A figure as it was recorded and as it was counted. None: there is no such access."""

    recorded: float | None
    counted: float | None

    @property
    def agrees(self) -> bool:
        """Whether both are within the limit, or neither has such accesses."""
        if self.recorded is None or not self.counted:
            return self.recorded is None and not self.counted
        return abs(self.recorded / self.counted - 1) <= LIMIT

    @property
    def cells(self) -> tuple[str, str]:
        """Both figures for a table."""
        recorded, counted = ("" if not figure else f"{figure:.2f}" for figure in self)
        return recorded, counted


def pairs(row: Mapping[str, str]) -> list[Pair]:
    """Return sectors per load and store, then wavefronts per load and store."""
    case = Case(row["op"], row["variant"], row["tile"], int(row["n"]))
    kernel = case.kernel
    tile = kernel.tiles.read(case.tile)
    (recorded,) = record(kernel, [tile], case.problem, example(DEFAULT))[tile]
    result = []
    for lines, figure, sectors in (
        (recorded.global_lines, "sectors", True),
        (recorded.shared_lines, "wavefronts", False),
    ):
        for kind, name in (("read", "load"), ("write", "store")):
            of_kind = [line for line in lines if line.kind == kind]
            counted = (
                float(row[f"{name}_sectors"])
                if sectors
                else ratio(row, f"{name}_wavefronts", f"shared_{name}s")
            )
            result.append(Pair(average(of_kind, figure), counted))
    return result


def table(path: Path) -> int:
    """Print recorded and counted figures. Return 1 if too few kernels agree."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    lines, agree = [], 0
    for row in rows:
        found = pairs(row)
        agrees = all(pair.agrees for pair in found[:2])
        agree += agrees
        cells = (cell for pair in found for cell in pair.cells)
        name = row["tile"].partition("kernel=")[2] or f"{row['variant']} {row['tile']}"
        lines.append([name, *cells, "yes" if agrees else "no"])
    heading = ["kernel"]
    for what in ("sectors, load", "sectors, store", "wavefronts, load", "wavefronts, store"):
        heading += [what, "counted"]
    print(markdown([*heading, "sectors within 5 %"], lines))
    print(
        f"\nSectors per request of {agree} of {len(rows)} kernels are within 5 % of the counters."
    )
    return int(agree < NEEDED)


def main(words: Sequence[str]) -> int:
    name, path = words[0], Path(words[1])
    if name == "launch":
        launch(path)
        return 0
    return {"measure": measure, "table": table}[name](path)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
