"""Every kernel of the ladder under compute-sanitizer, at sizes that nothing divides.

    python benchmarks/sanitize.py > results/h200/sanitizer.txt

needs a GPU and `compute-sanitizer` (CUDA toolkit). A sweep a tool, over every legal block tile, and
exit code 1 if a tool complains or a point is not right. memcheck watches accesses outside memory,
racecheck those to shared memory that no barrier orders, synccheck the barriers themselves.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from gpubench.model import CudaVariant
from gpubench.plan.registry import choose
from gpubench.row import read

TOOLS = ("memcheck", "racecheck", "synccheck")
SIZES = "129x261x77,130x260x68"
"""N odd, and a multiple of 4: both ways of loading B."""


def clean(kernels: list[CudaVariant], tool: str, output: Path) -> bool:
    """Whether a tool has nothing to say about any tile of the kernels, and all points are right."""
    tiles = dict.fromkeys(
        str(tile) for one in kernels for tile in (one.tiles.legal if one.tiles else ())
    )
    done = subprocess.run(
        [
            # The worker that measures is a process of its own. Errors of API calls are not for the
            # tool: cuda-bindings asks the driver for every function, also those it lacks.
            *("compute-sanitizer", "--tool", tool, "--target-processes", "all"),
            *("--report-api-errors", "no"),
            *("--error-exitcode", "3", sys.executable, "-m", "gpubench", "sweep"),
            *("--variants", ",".join(one.name for one in kernels), "--tiles", ",".join(tiles)),
            *("--sizes", SIZES, "--rounds", "1", "--budget", "1", "--output", str(output)),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    print(f"{tool}: exit {done.returncode}")
    for line in done.stdout.splitlines():
        if "SUMMARY" in line:
            print(f"  {line}")
    rows = [one for one in read(output) if one.status != "skipped"] if output.exists() else []
    for name in dict.fromkeys(one.variant for one in rows):
        counts = Counter(one.status for one in rows if one.variant == name)
        print(f"  {name:<16} {', '.join(f'{count} {status}' for status, count in counts.items())}")
    sys.stdout.flush()
    right = bool(rows) and all(one.status == "ok" for one in rows)
    if done.returncode or not right:
        print(done.stdout[-4000:], done.stderr[-4000:])
    return done.returncode == 0 and right


def main() -> None:
    kernels = [
        one
        for one in choose("gemm", "cuda", ())
        if isinstance(one, CudaVariant) and one.tiles and one.tiles.kind == len("MNK")
    ]
    with tempfile.TemporaryDirectory() as folder:
        results = [clean(kernels, tool, Path(folder) / f"{tool}.csv") for tool in TOOLS]
    sys.exit(not all(results))


if __name__ == "__main__":
    main()
