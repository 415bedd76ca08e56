"""How often `gpubench diff` exits 1 between sweeps of one build on this machine's CPU.

    python benchmarks/diff_pairs.py > results/cpu/diff_pairs.txt    # about seven minutes

Sweeps follow one another. A side has five of them, taken in turns with the other side's, as `diff`
asks for on a CPU; each pair of sides starts one sweep later than the pair before it. Exits 1 if
more than one of the pairs does.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path

from shared import GPUBENCH, child, verdict

PAIRS, A_SIDE = 20, 5
SWEEP = ("sweep", "--device", "cpu", "--sizes", "128", "--tiles", "4..32:4")


def main() -> int:
    codes: Counter[int | None] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        sweeps = [Path(folder) / f"{number}.csv" for number in range(PAIRS + 2 * A_SIDE - 1)]
        for path in sweeps:
            if code := child((*GPUBENCH, *SWEEP, "-o", path)).code:
                return code
        for first in range(PAIRS):
            taken = sweeps[first : first + 2 * A_SIDE]
            sides = ("--base", *taken[::2], "--new", *taken[1::2])
            compared = child((*GPUBENCH, "diff", *sides))
            print(f"exit {compared.code}: {compared.out.partition(chr(10))[0]}")
            codes[compared.code] += 1
    said = f"{codes[1]} of {PAIRS} pairs of one build exit 1, at most 1"
    return int(not verdict(codes[1] <= 1 and set(codes) <= {0, 1}, said))


if __name__ == "__main__":
    sys.exit(main())
