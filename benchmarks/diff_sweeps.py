"""Sweeps of one build, one process each, for `benchmarks/diff_power.py` to compare.

    python benchmarks/diff_sweeps.py 20 sweeps --sizes 256,512,1024,2048 --tiles 1,2,4,8,16,32 \
        --rounds 10 --budget 15

writes sweeps/01.csv to sweeps/20.csv; what follows the directory goes to `gpubench sweep`. Files
that are there already are kept, so an interrupted run continues where it stopped.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path


def main(count: str, folder: str, *options: str) -> int:
    Path(folder).mkdir(parents=True, exist_ok=True)
    for number in range(1, int(count) + 1):
        path = Path(folder) / f"{number:02}.csv"
        if path.exists():
            continue
        began = time.monotonic()
        command = [sys.executable, "-m", "gpubench", "sweep", *options, "--output", str(path)]
        # --force: what an interrupted sweep left is measured again.
        done = subprocess.run([*command, "--force"], capture_output=True, text=True, check=False)
        print(f"{path}: exit {done.returncode}, {time.monotonic() - began:.1f} s", flush=True)
        if done.returncode:
            print(done.stderr.strip())
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
