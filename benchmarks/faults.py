"""Sweep kernels with faults beside good ones: what is reported, and which good times change.

    python benchmarks/faults.py [directory for the CSVs]

The kernels of `benchmarks/faults/` are right except at edge 16, where each has another fault.
Prints the status of each point, and by how much the times of the good points differ from a sweep
without the faulty kernels. Exits 1 if a status is not the expected one, or a good time changed by
more than 1 %. Takes about two minutes: one kernel hangs until it is killed.
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
"""The status of each kernel at edge 16."""

FAULTY_EDGE = "16"
MAX_CHANGE = 0.01


def sweep(variants: tuple[str, ...], path: Path) -> tuple[int, dict[tuple[str, str], Row]]:
    command = [
        *(sys.executable, "-m", "gpubench", "sweep", "--device", "cuda", "--sizes", "1024"),
        *("--kernels", str(FAULTS), "--variants", ",".join(variants), "--tiles", "8,16,32"),
        *("--point-limit", "15", "--output", str(path), "--force"),
    ]
    code = subprocess.run(command, check=False).returncode
    return code, {(row.variant, row.tile): row for row in read(path)}


def main(directory: Path) -> int:
    _, alone = sweep(GOOD, directory / "alone.csv")
    code, beside = sweep((*GOOD, *EXPECTED), directory / "beside_faults.csv")
    print(f"\nexit code {code}")
    failed = code != 1
    for (variant, tile), row in beside.items():
        expected = EXPECTED.get(variant, "ok") if tile == FAULTY_EDGE else "ok"
        detail = row.reason or ""
        if row.status == "ok" and (variant, tile) in alone:
            change = row.median_us / alone[variant, tile].median_us - 1
            failed |= abs(change) > MAX_CHANGE
            detail = f"{row.median_us:.2f} µs, {100 * change:+.2f} % from without faults"
        failed |= row.status != expected
        note = "" if row.status == expected else f" (expected {expected})"
        print(f"{variant:18} {tile:>3}  {row.status}{note}  {detail}")
    return int(failed)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit(main(Path(sys.argv[1])))
    with tempfile.TemporaryDirectory() as temporary:
        sys.exit(main(Path(temporary)))
