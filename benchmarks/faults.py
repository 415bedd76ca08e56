"""A sweep over kernels that fault, beside one without them: what is lost, and what moves.

    python benchmarks/faults.py [folder for the CSVs]

`benchmarks/faults/` holds kernels that are right but for edge 16, where each does something else
that a GPU does not survive. Prints what became of each point, and how far the good points' times
are from those of a sweep without the faulty ones. Exits 1 if a status is not the one expected, or a
good time moved by more than 1 %. Takes about two minutes: one kernel hangs until it is killed.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from gpubench.row import Row, read

FAULTS = Path(__file__).with_name("faults")
GOOD = ("naive", "shared_tile", "cublas")
EXPECTED = {
    "asserts": "error",
    "does_not_compile": "error",
    "hangs": "error",
    "illegal_access": "error",
    "misaligned": "error",
    "overflows_stack": "error",
    "wrong": "wrong",
}
"""The status of each at edge 16."""

FAULTY_EDGE = "16"
MOVED = 0.01


def sweep(variants: tuple[str, ...], path: Path) -> tuple[int, dict[tuple[str, str], Row]]:
    command = [
        *(sys.executable, "-m", "gpubench", "sweep", "--device", "cuda", "--sizes", "1024"),
        *("--kernels", str(FAULTS), "--variants", ",".join(variants), "--tiles", "8,16,32"),
        *("--point-limit", "15", "--output", str(path), "--force"),
    ]
    code = subprocess.run(command, check=False).returncode
    return code, {(row.variant, row.tile): row for row in read(path)}


def main(folder: Path) -> int:
    _, alone = sweep(GOOD, folder / "alone.csv")
    code, beside = sweep((*GOOD, *EXPECTED), folder / "beside_faults.csv")
    print(f"\nexit code {code}")
    failures = code != 1
    for (variant, tile), row in beside.items():
        expected = EXPECTED.get(variant, "ok") if tile == FAULTY_EDGE else "ok"
        said = row.reason or ""
        if row.status == "ok" and (variant, tile) in alone:
            moved = row.median_us / alone[variant, tile].median_us - 1
            failures |= abs(moved) > MOVED
            said = f"{row.median_us:.2f} µs, {100 * moved:+.2f} % from without faults"
        failures |= row.status != expected
        mark = "" if row.status == expected else f" (expected {expected})"
        print(f"{variant:18} {tile:>3}  {row.status}{mark}  {said}")
    return int(failures)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit(main(Path(sys.argv[1])))
    with tempfile.TemporaryDirectory() as temporary:
        sys.exit(main(Path(temporary)))
