"""Count the verdicts of `gpubench ab` on a CPU while other work starts and stops beside it.

    python research/ab_runs.py --runs 60 -o ab.json    # 16 hours on two CPUs
    taskset -c 8,9 python research/ab_runs.py --runs 1 --first 1 -o ab_4.json    # one of many
    python research/ab_runs.py --quiet --runs 1 --first 1 -o ab.json    # without the other work

Each run has the default number of pairs. Every other run compares a directory that holds a kernel
with a copy of this directory. The other runs compare the directory with a kernel that is 10 %
slower, because it computes a tenth of the rows twice. Meanwhile a process keeps a core busy and
sleeps in turns, a random 1 to 8 seconds each. Runs that are already in the file count too, so the
runs can be spread over several calls. `--first 1` begins with a slower kernel. Several calls may
run at once, each on its own CPUs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from common import GPUBENCH, child, parser, save

from gpubench.commands.diff.options import AB_CPU_PAIRS
from gpubench.results.provenance import package_version

SIZES = "128,192"
TIMEOUT_S = 7200
SAME = "same"
SLOWER = "10 % slower"

KERNEL = """
import numpy as np
from gpubench.model import CallVariant


def build(tile, dtype):
    def multiply(a, b, c):
        {body}

    return multiply


VARIANT = CallVariant(idea="a loop", runs_on="cpu", build=build)
"""

LOOP = "np.einsum('ik,kj->ij', a, b, out=c, optimize=False)"
TWICE = "tenth = len(a) // 10; np.einsum('ik,kj->ij', a[:tenth], b, out=c[:tenth], optimize=False)"

DISTURBANCE = """
import os, random, time
rng, parent = random.Random(), os.getppid()
while os.getppid() == parent:
    end = time.monotonic() + rng.uniform(1, 8)
    while time.monotonic() < end:
        pass
    time.sleep(rng.uniform(1, 8))
"""


def kernels(directory: Path, body: str) -> Path:
    """Write the kernel into a new folder, and return the folder."""
    directory.mkdir()
    (directory / "loop.py").write_text(KERNEL.format(body=body))
    return directory


def run(slower: bool, program: str) -> dict[str, object]:
    """Run `gpubench ab` once, while another program runs."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        new = f"{TWICE}; {LOOP}" if slower else LOOP
        sides = kernels(folder / "base", LOOP), kernels(folder / "new", new)
        words = ("--variants", "loop,cpu_blas", "--sizes", SIZES, "--device", "cpu")
        disturbance = subprocess.Popen([sys.executable, "-c", program])
        try:
            ended = child(
                (*GPUBENCH, "ab", *sides, *words, "--format", "json", "-o", "diff.json"),
                timeout_s=TIMEOUT_S,
                cwd=folder,
            )
        finally:
            disturbance.kill()
            disturbance.wait()
        compared = json.loads((folder / "diff.json").read_text())
    return {
        "package": package_version()[0],
        "pairs": AB_CPU_PAIRS,
        "new": SLOWER if slower else SAME,
        "beside": "other work" if program else "nothing",
        "exit": ended.code,
        "seconds": round(ended.wall_s),
        "load": round(2 * os.getloadavg()[1] / (os.cpu_count() or 1), 1),  # of two CPUs
        "says": compared["headline"],
        "changed": {
            f"{point['variant']} {point['m']}": round(point["judged_ratio"], 3)
            for point in compared["points"]
            if point["verdict"] in {"slower", "faster"}
        },
    }


def main() -> None:
    """Run the comparisons, and add the outcomes to the file. results/claims.md has the rates."""
    options = parser(__doc__, "ab.json")
    options.add_argument("--runs", type=int, default=30)
    options.add_argument("--first", type=int, help="default: the number of runs in the file")
    options.add_argument("--quiet", action="store_true", help="without other work")
    asked = options.parse_args()
    outcomes = json.loads(asked.output.read_text()) if asked.output.exists() else []
    first = len(outcomes) if asked.first is None else asked.first
    for number in range(first, first + asked.runs):
        outcomes.append(run(number % 2 == 1, "" if asked.quiet else DISTURBANCE))
        print(outcomes[-1], flush=True)
        save(asked.output, outcomes)


if __name__ == "__main__":
    main()
