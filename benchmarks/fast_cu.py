"""Measure the matrix products of fast.cu beside cuBLAS and the kernels of gpubench.

    git clone https://github.com/pranjalssh/fast.cu /tmp/fast.cu
    python benchmarks/fast_cu.py /tmp/fast.cu -o fast_cu.csv

Needs a GPU of compute capability 9.0, and nvcc. nvcc compiles the sources as they are, with the
options of their Makefile. The script describes the last five kernels as a user would, in a
directory for `--kernels`: as functions that launch the compiled kernel. All kernels and libraries
share the rounds of one sweep.

fast.cu multiplies A (M×K, row-major) by B (K×N, column-major) and stores C column by column. With
exchanged operands, this is the row-major product of gpubench's layout `nt`. The libraries run in
this layout too. gpubench's kernels for bfloat16 take row-major operands only, so they and the
libraries also run in the layout `nn`.

Exit status: 0 every point of fast.cu is right, 1 a point is not.
"""

from __future__ import annotations

import argparse
import ctypes
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from shared import markdown, sweep_kernels, verdict

from gpubench.backends import Compiled
from gpubench.model import CallVariant, Config, Launch, Problem, Resources, Space, Status
from gpubench.results.row import Row

SIZES = (4096, 8192)
OURS = ("wgmma_mixed", "wgmma_deferred", "wgmma_fitted")
LIBRARIES = ("cublas", "cublaslt")
ROUNDS, SWEEP_S = 5, 240

BM, BN, BK, STAGES = 128, 256, 64, 3
"""A block computes BM×BN elements of fast.cu's M×N."""

THREADS, BLOCKS = 384, 128
CLUSTER = 2
"""Number of blocks of a cluster. They lie side by side along M."""

CLUSTERS = BLOCKS // CLUSTER
SCHEDULE_LENGTH = 128
"""Maximum number of tiles of a cluster that a schedule lists."""

GROUP = 2048
"""Kernels that compute their schedule take extents of C that are multiples of this."""

NVCC_OPTIONS = ("-std=c++17", "-O3", "-DNDEBUG", "-w", "--expt-relaxed-constexpr",
    "--expt-extended-lambda", "--use_fast_math", "-arch=sm_90a")  # fmt: skip
"""The options of fast.cu's Makefile that affect device code."""

PRELUDE = """\
#include <cassert>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
using bf16 = __nv_bfloat16;
using std::max;
#define CEIL_DIV(a, b) (((a) + (b) - 1) / (b))
#define cudaCheck(status) (void)(status)
"""
"""What a source expects from the file that includes it."""


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """How one kernel of fast.cu is launched."""

    stores_by_tma: bool = True
    """Whether it takes a tensor map of C. Otherwise it takes C's address."""

    takes_schedule: bool = False
    """Whether it takes an array that lists the tiles of each cluster."""

    c_rows: int = BM
    """Number of elements of a column of C that one store of the TMA takes."""

    c_padding: int = 0
    """Unused elements after each 64 elements of a column in shared memory."""

    @property
    def shared_bytes(self) -> int:
        """The dynamic shared memory: stages, then the tile of C, barriers and the schedule."""
        stages = STAGES * (BM + BN) * BK * 2
        if not self.stores_by_tma:  # its barriers are static
            return stages
        tile = BN * (BM + BM // 64 * self.c_padding) * 2
        rest = 2 * STAGES * 8 + (SCHEDULE_LENGTH * 4 if self.takes_schedule else 0)
        return stages + tile + -(-rest // 128) * 128

    @property
    def cpp_types(self) -> str:
        """The types of its parameters."""
        c = "CUtensorMap" if self.stores_by_tma else "bf16*"
        return f"int, int, int, {c}, CUtensorMap, CUtensorMap{', int*' * self.takes_schedule}"


KERNELS = {
    8: Kernel(stores_by_tma=False),
    9: Kernel(stores_by_tma=False),
    10: Kernel(),
    11: Kernel(takes_schedule=True),
    12: Kernel(takes_schedule=True, c_rows=BM // 2, c_padding=8),
}
"""The last five kernels, each faster than the one before, by the numbers of their files."""


def name_of(number: int) -> str:
    """Return the variant's name of a kernel of fast.cu."""
    return f"fast_cu_{number}"


def source_of(checkout: Path, number: int) -> Path:
    """Return the file of a kernel."""
    return checkout.resolve() / "examples" / "matmul" / f"matmul_{number}.cuh"


def wrapper(checkout: Path, number: int) -> str:
    """Return the text of a file that includes a kernel's source.

    It does not compile if the source has other template parameters, other arguments or another
    amount of shared memory than this description.
    """
    kernel = KERNELS[number]
    instance = f"{BM}, {BN}, {BK}, {THREADS}, {STAGES}, {BLOCKS}, {CLUSTER}, 1"
    return (
        f'{PRELUDE}#include "{source_of(checkout, number)}"\n'
        f"static_assert(sizeof(M{number}::SMem<{BM}, {BN}, {BK}, {STAGES}>) == "
        f"{kernel.shared_bytes});\n"
        f"void (*launched)({kernel.cpp_types}) = M{number}::matmulKernel{number}<{instance}>;\n"
    )


def find_nvcc() -> str:
    """Return the command of nvcc. Exit if it is missing."""
    home = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "bin" / "nvcc"
    command = shutil.which("nvcc") or (str(home) if home.exists() else None)
    return command or sys.exit("fast_cu.py: nvcc is missing; install the CUDA toolkit")


def compile_all(checkout: Path, folder: Path) -> dict[int, Path]:
    """Compile all kernels at once into cubins in `folder`, and return their paths."""
    nvcc, builds = find_nvcc(), {}
    for number in KERNELS:
        if not source_of(checkout, number).is_file():
            sys.exit(
                f"fast_cu.py: {checkout} is no checkout of fast.cu: matmul_{number} is missing"
            )
        path = folder / f"matmul_{number}.cu"
        path.write_text(wrapper(checkout, number), encoding="utf-8")
        command = [nvcc, *NVCC_OPTIONS, "-cubin", "-o", str(path.with_suffix(".cubin")), str(path)]
        builds[path.with_suffix(".cubin")] = subprocess.Popen(command)
    if failed := [path.stem for path, build in builds.items() if build.wait()]:
        sys.exit(f"fast_cu.py: nvcc does not compile {', '.join(failed)}")
    return dict(zip(KERNELS, builds, strict=True))


def describe(checkout: Path, cubins: dict[int, Path], folder: Path) -> list[str]:
    """Write a description of each kernel into `folder`, and return the variants' names."""
    for number, cubin in cubins.items():
        text = (
            f"import sys\n\nsys.path.insert(0, {str(Path(__file__).resolve().parent)!r})\n\n"
            "from fast_cu import described\n\n"
            f"VARIANT = described({number}, {str(cubin)!r}, {str(source_of(checkout, number))!r})\n"
        )
        (folder / f"{name_of(number)}.py").write_text(text, encoding="utf-8")
    return [name_of(number) for number in cubins]


def described(number: int, cubin: str, source: str) -> CallVariant:
    """Return the description of a kernel that nvcc compiled into `cubin`."""
    kernel = KERNELS[number]
    rows, columns = (BN, CLUSTER * BM) if kernel.takes_schedule else (GROUP, GROUP)

    def refuse(_tile: Config | None, problem: Problem) -> str | None:
        if problem.m % rows or problem.n % columns or problem.k % BK:
            return f"takes M, N and K divisible by {rows}, {columns} and {BK}"
        tiles = (problem.m // rows) * (problem.n // columns)
        if kernel.takes_schedule and tiles > CLUSTERS * SCHEDULE_LENGTH:
            return f"its schedule has no room for {tiles:,} tiles"
        return None

    return CallVariant(
        idea=f"kernel {number} of fast.cu, compiled by nvcc",
        dtypes=("bfloat16",),
        runs_on="cuda",
        build=lambda _tile, _dtype: Product(kernel, Path(cubin)),
        tiles=Space(
            # gpubench's rows are fast.cu's columns, because the operands are exchanged.
            axes={
                "BM": (BN,),
                "BN": (BM,),
                "BK": (BK,),
                "stages": (STAGES,),
                "cluster": (f"1x{CLUSTER}",),
            },
            block=("BM", "BN", "BK"),
            default=(f"{BN}x{BM}x{BK}/s{STAGES}/cluster=1x{CLUSTER}",),
        ),
        column_major=("B",),
        refuse=refuse,
        file=source,
        baseline="cublas",
    )


class Product:
    """A compiled kernel as a function of A, B and C on the GPU."""

    def __init__(self, kernel: Kernel, cubin: Path) -> None:
        from gpubench.backends.cuda.launching import allow_shared_memory, load_function

        content = cubin.read_bytes()
        symbol = re.search(rb"_ZN\w+matmulKernel\w+", content)
        if symbol is None:
            raise ValueError(f"{cubin} has no matmulKernel")
        unknown = Resources(registers=0, local_bytes=0, spill_bytes=0, shared_bytes=0)
        compiled = Compiled(cubin=content, symbol=symbol[0].decode(), resources=unknown)
        self._function = load_function(compiled)
        self._launch = Launch(grid=(BLOCKS,), block=(THREADS,), shared_bytes=kernel.shared_bytes)
        allow_shared_memory(self._function, self._launch)
        self._kernel = kernel
        self._bound: dict[tuple[int, ...], Callable[[], None]] = {}
        self._schedules: dict[tuple[int, int], Any] = {}

    def __call__(self, a: Any, b: Any, c: Any) -> None:
        """Enqueue C = A·B in the current stream. B is column-major."""
        key = (a.data.ptr, b.data.ptr, c.data.ptr, *a.shape, c.shape[1])
        if key not in self._bound:
            self._bound[key] = self._bind(*key)
        self._bound[key]()

    def _bind(self, a: int, b: int, c: int, m: int, k: int, n: int) -> Callable[[], None]:
        """Return the launch on arrays at these addresses."""
        from gpubench.backends.cuda.launching import bind_launch

        if not self._kernel.takes_schedule:
            # To predict a launch's time, gpubench launches it on few rows of larger arrays.
            m = -(-m // GROUP) * GROUP
        arguments: list[Any] = [ctypes.c_int(extent) for extent in (n, m, k)]
        if self._kernel.stores_by_tma:
            box = (64 + self._kernel.c_padding, BN, self._kernel.c_rows // 64)
            arguments.append(tensor_map(c, m, n, box, swizzled=False))
        else:
            arguments.append(ctypes.c_void_p(c))
        for address, rows, box_rows in ((b, n, BM), (a, m, BN)):
            arguments.append(tensor_map(address, rows, k, (64, box_rows, BK // 64), swizzled=True))
        if self._kernel.takes_schedule:
            arguments.append(ctypes.c_void_p(self._schedule(m, n).data.ptr))
        return bind_launch(self._function, self._launch, arguments)

    def _schedule(self, m: int, n: int) -> Any:
        import cupy

        tiles = -(-n // (CLUSTER * BM)), -(-m // BN)
        if tiles not in self._schedules:
            self._schedules[tiles] = cupy.asarray(schedule(*tiles), "int32")
        return self._schedules[tiles]


def tensor_map(
    address: int, rows: int, columns: int, box: tuple[int, int, int], *, swizzled: bool
) -> Any:
    """Return the map of a bfloat16 matrix in pieces of 64 columns, as an argument by value.

    Its dimensions are the column in a piece, the row, and the piece. That is why the description is
    a function: gpubench's `TensorMap` has two dimensions.
    """
    from cuda.bindings import driver

    u32, u64 = driver.cuuint32_t, driver.cuuint64_t
    kinds = driver.CUtensorMapSwizzle
    status, encoded = driver.cuTensorMapEncodeTiled(
        *(driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, address),
        (u64(64), u64(rows), u64(columns // 64)),
        (u64(2 * columns), u64(2 * 64)),
        tuple(map(u32, box)),
        (u32(1), u32(1), u32(1)),
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        kinds.CU_TENSOR_MAP_SWIZZLE_128B if swizzled else kinds.CU_TENSOR_MAP_SWIZZLE_NONE,
        driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_NONE,
        driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )
    if status:
        raise ValueError(f"cuTensorMapEncodeTiled: {status.name}")
    return ctypes.create_string_buffer(ctypes.string_at(int(encoded.getPtr()), 128), 128)


def schedule(rows: int, columns: int) -> list[list[int]]:
    """Return the tiles of each cluster in order, as 65536 · row + column, with -1 after the last.

    The tiles follow a Hilbert curve. The clusters take them in turn.
    """
    curve = hilbert(max(rows, columns))
    tiles = [row << 16 | column for row, column in curve if row < rows and column < columns]
    return [
        (tiles[first::CLUSTERS] + [-1] * SCHEDULE_LENGTH)[:SCHEDULE_LENGTH]
        for first in range(CLUSTERS)
    ]


@cache
def hilbert(extent: int) -> tuple[tuple[int, int], ...]:
    """Return the points of a Hilbert curve in a square that has at least `extent` rows.

    Each step joins four copies of the curve: a transposed one, two as they are, and one that is
    transposed along the other diagonal.
    """
    curve, side = [(0, 0)], 1
    while side < extent:
        last = side - 1
        curve = [
            *((y, x) for x, y in curve),
            *((x, y + side) for x, y in curve),
            *((x + side, y + side) for x, y in curve),
            *((last - y + side, last - x) for x, y in curve),
        ]
        side *= 2
    return tuple(curve)


def sweep(folder: Path, names: Sequence[str], rounds: int, output: Path) -> list[Row]:
    """Sweep the kernels of fast.cu, gpubench and the libraries, and return the rows."""
    return sweep_kernels(
        folder,
        (*names, *LIBRARIES, *OURS),
        *("--layouts", "nn,nt", "--sizes", ",".join(map(str, SIZES)), "--dtypes", "bfloat16"),
        *("--tiles", "auto", "--rounds", str(rounds), "--force"),
        output=output,
        timeout_s=SWEEP_S,
    )


def report(rows: Sequence[Row]) -> int:
    """Print a line per point and the verdict, and return the exit status."""
    rows = [row for row in rows if row.status != Status.SKIPPED]  # layouts not taken
    statuses = [row.status for row in rows if row.variant.startswith("fast_cu")]
    right, count = statuses.count(Status.OK), len(KERNELS) * len(SIZES)
    cells = [
        [
            f"{row.variant} {row.tile or ''}",
            row.n,
            row.layout,
            row.status,
            f"{row.median_us or 0:.1f}",
        ]
        for row in sorted(rows, key=lambda row: (row.n, row.median_us or math.inf))
    ]
    print(markdown(["kernel", "n", "layout", "status", "µs"], cells))
    return int(not verdict(right == count, f"{right} of {count} points of fast.cu are ok"))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkout", type=Path, help="a checkout of fast.cu")
    parser.add_argument("-o", "--output", type=Path, default=Path("fast_cu.csv"))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--describe", type=Path, help="only write the descriptions, into a folder")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        built = (chosen.describe or Path(name, "fast_cu")) / "_built"
        built.mkdir(parents=True)
        cubins = compile_all(chosen.checkout, built)
        names = describe(chosen.checkout, cubins, built.parent)
        if chosen.describe:
            return 0
        return report(sweep(built.parent, names, chosen.rounds, chosen.output))


if __name__ == "__main__":
    sys.exit(main())
