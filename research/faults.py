"""Sweep kernels with planted faults beside good kernels, and the good kernels alone.

    python research/faults.py -o faults.json

The kernels of `faults/gemm/faulty.cu` are right except at edge 16, where each has one fault. One
kernel hangs. Needs a GPU. results/claims.md has the bounds for statuses and times.
"""

import tempfile
from pathlib import Path

from common import GPUBENCH, child, parser, save

from gpubench.plan.registry import of_op
from gpubench.results.row import Row, read

FAULTS = Path(__file__).with_name("faults")
GOOD = ("naive", "shared_tile", "cublas")
FAULTY = of_op("gemm", FAULTS)["faulty"]
EXPECTED = {
    f"16/fault={name}": "wrong" if name == "wrong" else "error"
    for name in FAULTY.tiles.axes["fault"]
}
"""Expected statuses of the tiles of `faulty`. All other points must be `ok`."""


def sweep(variants: tuple[str, ...], path: Path) -> tuple[int | None, list[Row]]:
    """Sweep the variants at size 1024, and return the exit code and the rows."""
    words = ("sweep", "--device", "cuda", "--sizes", "1024")
    more = ("--kernels", FAULTS, "--variants", ",".join(variants), "--point-limit", "15")
    ended = child((*GPUBENCH, *words, *more, "--output", path))
    return ended.code, read(path)


def main() -> None:
    options = parser(__doc__, "faults.json")
    asked = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        alone = {row.key: row.median_us for row in sweep(GOOD, Path(folder, "alone.csv"))[1]}
        code, rows = sweep((*GOOD, FAULTY.name), Path(folder, "beside.csv"))
    points = []
    for row in rows:
        alone_us = alone.get(row.key)
        change = row.median_us / alone_us - 1 if row.median_us and alone_us else None
        expected = EXPECTED.get(row.tile, "ok")
        point = {"variant": row.variant, "tile": row.tile, "status": row.status}
        times = {"median_us": row.median_us, "change": change}
        points.append({**point, "expected": expected, "reason": row.reason or "", **times})
    save(asked.output, {"exit": code, "points": points})


if __name__ == "__main__":
    main()
