"""What verification adds to a sweep's wall time; to its CPU time, on a CPU.

    python benchmarks/verify_cost.py > results/h200/verify_cost.txt
    python benchmarks/verify_cost.py --device cpu --pairs 1

Sweeps in turns, by this package and by a copy of it that verifies the first launches alone: it does
not probe, compares no outputs after timing, and does not check what a time depends on. Exits 1 if
these checks add more than 10 %.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from shared import GPUBENCH, ROOT, child, verdict

PAIRS = 2
MOST_PERCENT = 10

LEFT_OUT = {
    "                    self._probe(point)\n": "",
    "        check.start()\n        for pause_s": "        for pause_s",
    "            check.look()\n            slowed": "            slowed",
    "if checks := launches == 1 and left > 0:": "if checks := False:",
    "                if point.scope == Scope.KERNEL:\n                    is_first": (
        "                if False:\n                    is_first"
    ),
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


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--sizes", default="512,1024")
    parser.add_argument("--pairs", type=int, default=PAIRS)
    chosen = parser.parse_args()
    sweep = ("sweep", "--device", chosen.device, "--sizes", chosen.sizes)
    with tempfile.TemporaryDirectory() as name:
        copy = without_checks(Path(name))

        def cost_s(cwd: Path, *words: str) -> float:
            """Sweep, and return seconds of wall time; of the CPUs' time, if they compute."""
            output, before_s = copy / "sweep.csv", _cpu_s()
            output.unlink(missing_ok=True)
            ended = child((*GPUBENCH, *sweep, *words, "-o", output), cwd=cwd)
            if ended.code:
                sys.exit(f"verify_cost.py: the sweep ended with {ended.code}: {ended.last_line}")
            return _cpu_s() - before_s if chosen.device == "cpu" else ended.wall_s

        for cwd in (ROOT, copy):  # compiles
            cost_s(cwd, "--rounds", "1")
        added = []
        for number in range(chosen.pairs):
            order = (ROOT, copy) if number % 2 else (copy, ROOT)
            took_s = {cwd: cost_s(cwd) for cwd in order}
            added.append(100 * (took_s[ROOT] / took_s[copy] - 1))
            print(f"with {took_s[ROOT]:.1f} s, without {took_s[copy]:.1f} s")
    percent = statistics.median(added)
    said = f"verification adds {percent:.1f} % on {chosen.device}, at most {MOST_PERCENT} %"
    return int(not verdict(percent <= MOST_PERCENT, said))


if __name__ == "__main__":
    sys.exit(main())
