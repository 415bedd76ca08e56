"""Count what `gpubench ab` says on a CPU while other work starts and stops beside it.

    python benchmarks/ab_runs.py --runs 30 -o ab.json    # an hour

Each run takes two minutes. It compares a directory that holds a kernel with a copy of itself. Every
third run compares it with a kernel that is 10 % slower: it computes a tenth of the rows twice.
Meanwhile a process keeps a core busy and sleeps in turns, a random 1 to 8 seconds each. Runs that
the file has already count too, so they can be spread over several calls. Exits 1 if more than one
in twenty comparisons with a copy exits 1, or fewer than nine in ten of those with a slower kernel.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from shared import GPUBENCH, child, save, verdict

RUN_S, SIZES = 120, "128,192"
TIMEOUT_S = 600

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
import random, sys, time
rng = random.Random(int(sys.argv[1]))
while True:
    end = time.monotonic() + rng.uniform(1, 8)
    while time.monotonic() < end:
        pass
    time.sleep(rng.uniform(1, 8))
"""


def kernels(directory: Path, body: str) -> Path:
    """Write the kernel."""
    directory.mkdir()
    (directory / "loop.py").write_text(KERNEL.format(body=body))
    return directory


def run(number: int, *, slower: bool) -> dict[str, object]:
    """Compare once, beside the disturbance."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        new = f"{TWICE}; {LOOP}" if slower else LOOP
        sides = kernels(folder / "base", LOOP), kernels(folder / "new", new)
        words = ("--variants", "loop,cpu_blas", "--sizes", SIZES, "--device", "cpu")
        disturbance = subprocess.Popen([sys.executable, "-c", DISTURBANCE, str(number)])
        try:
            ended = child(
                (*GPUBENCH, "ab", *sides, *words, "--budget", str(RUN_S), "--results", "sweeps"),
                timeout_s=TIMEOUT_S,
                cwd=folder,
            )
        finally:
            disturbance.kill()
            disturbance.wait()
        pairs = len(list((folder / "sweeps").glob("base-*.csv")))
    return {
        "new": "10 % slower" if slower else "same",
        "exit": ended.code,
        "seconds": round(ended.wall_s),
        "pairs": pairs,
        "says": ended.out.partition("\n")[0],
    }


def main() -> int:
    """Run, add the outcomes to the file, and return 1 if a bound is broken."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("-o", "--output", type=Path, default=Path("ab.json"))
    asked = parser.parse_args()
    outcomes = json.loads(asked.output.read_text()) if asked.output.exists() else []
    for _ in range(asked.runs):
        number = len(outcomes)
        outcomes.append(run(number, slower=number % 3 == 2))  # noqa: PLR2004 # every third
        print(outcomes[-1], flush=True)
        save(asked.output, outcomes)
    same, slower_ones = (
        [outcome["exit"] for outcome in outcomes if outcome["new"] == new]
        for new in ("same", "10 % slower")
    )
    false, hits = same.count(1), slower_ones.count(1)
    few = verdict(20 * false <= len(same), f"{false} of {len(same)} copies exit 1")
    enough = verdict(10 * hits >= 9 * len(slower_ones), f"{hits} of {len(slower_ones)} slower do")
    return int(not (few and enough))


if __name__ == "__main__":
    sys.exit(main())
