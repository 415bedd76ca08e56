"""The share of verification in the wall time of README's sweeps, by their last lines.

    python benchmarks/verify_cost.py > results/h100/verify_cost.txt
    python benchmarks/verify_cost.py first --device cpu

The first command begins without CuPy's cache of compiled kernels, as after the installation.
Outputs of samples are compared while sampling, which does not count here.
Exit status: 0 both shares are within their bounds, 1 one is not.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from shared import GPUBENCH, child, verdict

SWEEPS = {"first": ((), 20), "long": (("--sizes", "1024,2048", "--tiles", "1..32"), 10)}
"""Options of each sweep, and the largest share of verification in percent."""

PHASE = re.compile(r"verifying [\d.,]+ s \((\d+) %\)")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sweeps", nargs="*", choices=(*SWEEPS, []), default=[])
    parser.add_argument("--device", default="cuda")
    chosen = parser.parse_args()
    held = []
    with tempfile.TemporaryDirectory() as folder:
        for name in chosen.sweeps or SWEEPS:
            words, most = SWEEPS[name]
            output = Path(folder) / f"{name}.csv"
            sweep = (*GPUBENCH, "sweep", "--device", chosen.device, *words, "--output", output)
            ended = child(sweep, err=subprocess.PIPE, CUPY_CACHE_DIR=folder)
            line = next((x for x in ended.err.splitlines() if PHASE.search(x)), ended.last_line)
            share = PHASE.search(line)
            within = share is not None and int(share[1]) <= most
            held.append(verdict(within, f"{name}: at most {most} % for verifying: {line}"))
    return int(not all(held))


if __name__ == "__main__":
    sys.exit(main())
