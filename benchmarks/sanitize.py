"""Run every kernel of the ladder under compute-sanitizer, at sizes that no tile divides.

    python benchmarks/sanitize.py memcheck bfloat16 -o memcheck_bfloat16.json
    python benchmarks/sanitize.py racecheck tf32 --variants wgmma_tf32_cluster --sizes 200x272x1040

Needs a GPU and `compute-sanitizer` (CUDA toolkit). It sweeps the kernels whose first dtype is the
given one, over every legal block tile. Of a kernel with many tiles it runs the default ones. Exits
1 if the tool reports an error or a point is wrong, 2 if the sweep could not begin. memcheck finds
accesses outside allocations, racecheck races in shared memory, synccheck illegal use of barriers.
"""

import argparse
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from shared import save

from gpubench.model import Config, CudaVariant
from gpubench.plan.registry import choose
from gpubench.results.row import read

SIZES = ("129x261x77", "130x260x68", "136x264x72", "136x264x144")
"""N is odd, or a multiple of 4, as B is loaded in two ways. In the last two, N and K are multiples
of 8 and K of 16: tensor maps of 16-bit and 8-bit elements require that."""

MOST_TILES = 64
"""Kernels with more legal tiles run the default ones: a tile takes a third of a second."""

SLOW = "racecheck"
"""Takes 4.5 s a point, so it runs default tiles at the first two sizes. It ignores tensor maps."""


def swept(
    kernels: list[CudaVariant], dtype: str, tool: str, sizes: tuple[str, ...], output: Path
) -> dict[str, Any]:
    """Sweep the kernels under a tool; return its exit code and summary, and points by status."""
    names = ",".join(kernel.name for kernel in kernels)
    most_tiles = 0 if tool == SLOW else MOST_TILES
    tiles = dict.fromkeys(str(tile) for kernel in kernels for tile in tiles_of(kernel, most_tiles))
    done = subprocess.run(
        [
            # The worker that measures is a child process. Errors of API calls are not reported,
            # because cuda-bindings requests every function of the driver, also missing ones.
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
    if not output.exists():  # the sweep did not begin, which says nothing about the kernels
        sys.stderr.write(f"{done.stdout[-4000:]}{done.stderr[-4000:]}\n")
        sys.exit(2)
    points: dict[str, Counter[str | None]] = {}
    for row in read(output):
        if row.status != "skipped":
            points.setdefault(row.variant, Counter())[row.status] += 1
    if done.returncode:
        print(done.stdout[-4000:], done.stderr[-4000:])
    lines = [line.strip() for line in done.stdout.splitlines() if "SUMMARY" in line]
    code = done.returncode
    return {"tool": tool, "dtype": dtype, "exit": code, "summary": lines, "points": points}


def tiles_of(kernel: CudaVariant, most: int) -> tuple[Config, ...]:
    """Return the legal tiles, or the default ones if there are more than `most`."""
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
    parser.add_argument("-o", "--output", type=Path, default=Path("sanitize.json"))
    parser.add_argument("--variants", help="only these kernels, such as splitk_cluster")
    parser.add_argument("--sizes", help="in place of those of this script")
    asked = parser.parse_args()
    chosen = [kernel for kernel in kernels if kernel.dtypes[0] == asked.dtype]
    if asked.variants:
        chosen = [kernel for kernel in chosen if kernel.name in asked.variants.split(",")]
    sizes = SIZES[:2] if asked.tool == SLOW else SIZES
    if asked.sizes:
        sizes = tuple(asked.sizes.split(","))
    with tempfile.TemporaryDirectory() as directory:
        result = swept(chosen, asked.dtype, asked.tool, sizes, Path(directory) / "rows.csv")
    save(asked.output, result)
    statuses = set().union(*result["points"].values())
    sys.exit(result["exit"] != 0 or statuses != {"ok"})


if __name__ == "__main__":
    main()
