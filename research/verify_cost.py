"""Measure the wall time of the README's sweeps, and the share of verification in it.

    python research/verify_cost.py > results/h200/verify_cost.txt
    python research/verify_cost.py first --device cpu

Each sweep begins with empty caches of compiled kernels and results, as after the installation, but
with Python's bytecode, which `pip install` compiles. The last lines of a sweep state the time of
verification. Verification is the work that a sweep would skip if it trusted its kernels, including
the comparison of outputs between samples. Launches that load a kernel into a process, or that
predict its time, are not part of this work. Exit status: 0 if all times and shares are within their
bounds, otherwise 1.
"""

import compileall
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from common import GPUBENCH, ROOT, child, parser, verdict

SWEEPS = {"first": ((), 20, 20), "long": (("--sizes", "1024,2048", "--tiles", "1..32"), 90, 10)}
"""Maps a sweep to its options, its longest allowed time in seconds, and the largest allowed
percentage for verification."""

PHASE = re.compile(r"verifying [\d.,]+ s \((\d+) %\)")


def main() -> int:
    options = parser(__doc__)
    options.add_argument("sweeps", nargs="*", choices=(*SWEEPS, []), default=[])
    options.add_argument("--device", default="cuda")
    chosen = options.parse_args()
    compileall.compile_dir(ROOT / "gpubench", quiet=2, workers=0)
    held = []
    for name in chosen.sweeps or SWEEPS:
        words, most_s, max_percent = SWEEPS[name]
        with tempfile.TemporaryDirectory() as folder:
            output = Path(folder) / f"{name}.csv"
            sweep = (*GPUBENCH, "sweep", "--device", chosen.device, *words, "--output", output)
            ended = child(sweep, err=subprocess.PIPE, XDG_CACHE_HOME=folder, CUPY_CACHE_DIR=folder)
        line = next((x for x in ended.err.splitlines() if PHASE.search(x)), ended.last_line)
        share = PHASE.search(line)
        wall = f"{name}: at most {most_s} s: {ended.wall_s:.1f} s"
        held.append(verdict(ended.code == 0 and ended.wall_s <= most_s, wall))
        within = share is not None and int(share[1]) <= max_percent
        held.append(verdict(within, f"{name}: at most {max_percent} % for verifying: {line}"))
    return int(not all(held))


if __name__ == "__main__":
    sys.exit(main())
