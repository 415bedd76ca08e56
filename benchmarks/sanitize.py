"""Every kernel of the ladder under compute-sanitizer, at sizes that nothing divides.

    python benchmarks/sanitize.py > results/h200/sanitize.txt

needs a GPU and `compute-sanitizer` (CUDA toolkit). A line a kernel, tool and size, and exit code 1
if a tool complains. memcheck watches accesses outside memory, racecheck those to shared memory that
no barrier orders, synccheck the barriers themselves.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from gpubench.model import CudaVariant
from gpubench.plan.registry import choose

TOOLS = ("memcheck", "racecheck", "synccheck")
SIZES = "129x261x77,130x260x68"
"""N odd, and a multiple of 4: both ways of loading B."""


def clean(variant: CudaVariant, tool: str, folder: Path) -> bool:
    """Whether a tool has nothing to say about a variant's default tiles, and the results are right.

    The command runs in its own process, without the worker that a sweep starts, so that the tool
    sees the launches (`--target-processes all` follows it there).
    """
    done = subprocess.run(
        [
            *("compute-sanitizer", "--tool", tool, "--target-processes", "all"),
            *("--error-exitcode", "3", sys.executable, "-m", "gpubench", "sweep"),
            *("--variants", variant.name, "--sizes", SIZES, "--rounds", "1", "--budget", "1"),
            *("--output", str(folder / f"{variant.name}-{tool}.csv"), "--force"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    summary = [
        line for line in done.stdout.splitlines() if "ERROR SUMMARY" in line or "hazard" in line
    ]
    verdict = "clean" if done.returncode == 0 else f"exit {done.returncode}"
    print(f"{variant.name:<18} {tool:<10} {verdict:<8} {' '.join(summary[-1:])}", flush=True)
    if done.returncode:
        print(done.stdout[-2000:], done.stderr[-2000:])
    return done.returncode == 0


def main() -> None:
    kernels = [
        one
        for one in choose("gemm", "cuda", ())
        if isinstance(one, CudaVariant) and one.tiles and one.tiles.kind == len("MNK")
    ]
    with tempfile.TemporaryDirectory() as folder:
        results = [clean(one, tool, Path(folder)) for one in kernels for tool in TOOLS]
    sys.exit(not all(results))


if __name__ == "__main__":
    main()
