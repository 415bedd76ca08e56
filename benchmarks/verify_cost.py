"""What the exact probe and the check after timing add to a sweep's wall time.

    python benchmarks/verify_cost.py > results/h200/verify_cost.txt

Needs a GPU. Sweeps in turns, by this package and by a copy of it that does neither. Exits 1 if they
add more than 10 %.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from shared import GPUBENCH, ROOT, child, verdict

SWEEP = ("sweep", "--device", "cuda", "--sizes", "512,1024")
PAIRS = 2
MOST_PERCENT = 10

LEFT_OUT = {
    "                    self._probe(point)\n": "",
    "        check.start()\n        for pause_s": "        for pause_s",
    "            check.look()\n            slowed": "            slowed",
    "if seeing := launches == 1 and left > 0:": "if seeing := False:",
}
"""Lines of engine/runner.py, and what the copy has in their place."""


def without_checks(folder: Path) -> Path:
    """A folder with a copy of the package that verifies the first launches alone."""
    shutil.copytree(ROOT / "gpubench", folder / "gpubench")
    runner = folder / "gpubench/engine/runner.py"
    text = runner.read_text()
    for old, new in LEFT_OUT.items():
        if text.count(old) != 1:
            sys.exit(f"verify_cost.py: engine/runner.py has {text.count(old)} times {old!r}")
        text = text.replace(old, new)
    runner.write_text(text)
    return folder


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        copy = without_checks(Path(name))

        def wall_s(cwd: Path, *words: str) -> float:
            output = copy / "sweep.csv"
            output.unlink(missing_ok=True)
            ended = child((*GPUBENCH, *SWEEP, *words, "-o", output), cwd=cwd)
            if ended.code:
                sys.exit(f"verify_cost.py: the sweep ended with {ended.code}: {ended.last_line}")
            return ended.wall_s

        for cwd in (ROOT, copy):  # compiles
            wall_s(cwd, "--rounds", "1")
        added = []
        for number in range(PAIRS):
            order = (ROOT, copy) if number % 2 else (copy, ROOT)
            took_s = {cwd: wall_s(cwd) for cwd in order}
            added.append(100 * (took_s[ROOT] / took_s[copy] - 1))
            print(f"with {took_s[ROOT]:.1f} s, without {took_s[copy]:.1f} s")
    percent = statistics.median(added)
    said = f"the exact probe and the check after timing add {percent:.1f} %, at most {MOST_PERCENT}"
    return int(not verdict(percent <= MOST_PERCENT, said))


if __name__ == "__main__":
    sys.exit(main())
