"""Runs every kernel of the ladder under compute-sanitizer, at sizes that no tile divides.

    python benchmarks/sanitize.py memcheck bfloat16 > results/h200/sanitizer/memcheck_bfloat16.txt

Needs a GPU and `compute-sanitizer` (CUDA toolkit). It runs a sweep of the kernels whose first dtype
is the given one, over every legal block tile, or the default ones of a kernel that has many. Exits
1 if the tool reports an error or a point is wrong, 2 if the sweep could not begin. memcheck finds
accesses outside allocations, racecheck races in shared memory, synccheck illegal use of barriers.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from gpubench.model import Config, CudaVariant
from gpubench.plan.registry import choose
from gpubench.results.row import read

SIZES = ("129x261x77", "130x260x68", "136x264x72", "136x264x144")
"""N odd, and a multiple of 4: B is loaded in two ways. And N and K multiples of 8, and K of 16,
without which a tensor map takes no elements of 16 and of 8 bits."""

MOST_TILES = 64
"""Of a kernel all of whose legal tiles are run: under a tool, each takes a third of a second."""

SLOW = "racecheck"
"""Takes 4.5 s a point: default tiles and the first two sizes. Tensor maps it does not look at."""


def clean(kernels: list[CudaVariant], dtype: str, tool: str, output: Path) -> bool:
    """Whether a tool reports no error for any tile of the kernels, and all points are right."""
    names = ",".join(kernel.name for kernel in kernels)
    sizes, most_tiles = (SIZES[:2], 0) if tool == SLOW else (SIZES, MOST_TILES)
    tiles = dict.fromkeys(str(tile) for kernel in kernels for tile in tiles_of(kernel, most_tiles))
    done = subprocess.run(
        [
            # The worker that measures is a child process. Errors of API calls are not reported:
            # cuda-bindings asks the driver for every function, including those it lacks.
            *("compute-sanitizer", "--tool", tool, "--target-processes", "all"),
            *("--report-api-errors", "no"),
            *("--error-exitcode", "3", sys.executable, "-m", "gpubench", "sweep"),
            *("--variants", names, "--tiles", ",".join(tiles)),
            *("--sizes", ",".join(sizes), "--dtypes", dtype, "--rounds", "1", "--budget", "1"),
            *("--output", str(output)),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if not output.exists():  # the sweep did not begin: that says nothing of the kernels
        print(done.stdout[-4000:], done.stderr[-4000:], file=sys.stderr)
        sys.exit(2)
    print(f"{tool}, {dtype}: exit {done.returncode}")
    for line in done.stdout.splitlines():
        if "SUMMARY" in line:
            print(f"  {line}")
    rows = [row for row in read(output) if row.status != "skipped"]
    for name in dict.fromkeys(row.variant for row in rows):
        counts = Counter(row.status for row in rows if row.variant == name)
        print(f"  {name:<16} {', '.join(f'{count} {status}' for status, count in counts.items())}")
    sys.stdout.flush()
    right = bool(rows) and all(row.status == "ok" for row in rows)
    if done.returncode or not right:
        print(done.stdout[-4000:], done.stderr[-4000:])
    return done.returncode == 0 and right


def tiles_of(kernel: CudaVariant, most: int) -> tuple[Config, ...]:
    """The legal tiles, if there are no more than that, or else the default ones."""
    return tuple(kernel.tiles) if kernel.tiles.count() <= most else kernel.tiles.defaults


def main() -> None:
    kernels = [
        variant
        for variant in choose("gemm", "cuda", ())
        if isinstance(variant, CudaVariant) and variant.tiles and "BK" in variant.tiles.axes
    ]
    dtypes = dict.fromkeys(kernel.dtypes[0] for kernel in kernels)
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("tool", choices=("memcheck", SLOW, "synccheck"))
    parser.add_argument("dtype", choices=dtypes)
    asked = parser.parse_args()
    of_dtype = [kernel for kernel in kernels if kernel.dtypes[0] == asked.dtype]
    with tempfile.TemporaryDirectory() as directory:
        good = clean(of_dtype, asked.dtype, asked.tool, Path(directory) / "rows.csv")
    sys.exit(not good)


if __name__ == "__main__":
    main()
