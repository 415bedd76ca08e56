"""Count how often `gpubench diff` exits 1 between sweeps of one build on this machine's CPU.

    python benchmarks/diff_pairs.py -o diff_pairs.json    # about seven minutes

Sweeps run one after another. A side has five sweeps, taken in turns with those of the other side,
as `diff` recommends on a CPU. Each pair of sides starts one sweep later than the pair before it.
Exits 1 if more than one pair of the twenty does.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from shared import GPUBENCH, child, save, verdict

PAIRS, SWEEPS_PER_SIDE = 20, 5
SWEEP = ("sweep", "--device", "cpu", "--sizes", "128", "--tiles", "4..32:4")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("-o", "--output", type=Path, default=Path("diff_pairs.json"))
    asked = parser.parse_args()
    outcomes = []
    with tempfile.TemporaryDirectory() as folder:
        sweeps = [Path(folder, f"{at}.csv") for at in range(PAIRS + 2 * SWEEPS_PER_SIDE - 1)]
        for path in sweeps:
            if code := child((*GPUBENCH, *SWEEP, "-o", path)).code:
                return code
        for first in range(PAIRS):
            pair = sweeps[first : first + 2 * SWEEPS_PER_SIDE]
            compared = child((*GPUBENCH, "diff", "--base", *pair[::2], "--new", *pair[1::2]))
            outcomes.append({"exit": compared.code, "says": compared.out.partition("\n")[0]})
    save(asked.output, outcomes)
    codes = [outcome["exit"] for outcome in outcomes]
    said = f"{codes.count(1)} of {PAIRS} pairs of one build exit 1, at most 1"
    return int(not verdict(codes.count(1) <= 1 and set(codes) <= {0, 1}, said))


if __name__ == "__main__":
    sys.exit(main())
