"""Rivals beside the ladder and cuBLAS, and exported programs beside gpubench.

    pip install ".[cuda13,triton]"
    python benchmarks/rivals.py build build/programs     # exports, by nvcc: no GPU needed
    python benchmarks/rivals.py measure results/h200/rivals.csv    # or --dtypes float32, in parts
    python benchmarks/rivals.py table results/h200/rivals.csv > results/h200/rivals.md
    python benchmarks/rivals.py exports build/programs   # exported programs and gpubench, in turns

`measure` times torch.mm, torch.compile, a Triton kernel, the SGEMM kernels of
examples/own_signature (float32, as they are) and the fastest kernels of each precision, in one
sweep; join.py puts parts together. `table` prints each one's fastest tile. `exports` exits with 1
if a program's median differs from gpubench's by more than 3 %, or its result is wrong.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import statistics
import sys
from collections import defaultdict
from pathlib import Path

from shared import GPUBENCH, ROOT, child, markdown, verdict

from gpubench.results.row import Row, read
from gpubench.view.tables import best_of

SIZES = (1024, 2048, 4096, 8192)
DTYPES = ("bfloat16", "float16", "tf32", "float32")
KERNELS = ("sgemm", "packed_panels", "wgmma_persistent", "wgmma_mixed", "wgmma_tf32")
ROUNDS = 3
"""Each imports torch and compiles with Triton anew."""

EXPORTS = (
    ("shared_tile", "32", "float32"),
    ("packed_panels", "128x256x64/16x8/s2", "float32"),
    ("wgmma_mixed", "256x192x64/s3/cluster=1x2/group=16", "bfloat16"),
)
SIZE, TURNS, LIMIT = 4096, 3, 0.03


def gpubench(*words: str | Path) -> None:
    code = child((*GPUBENCH, *words), out=sys.stderr.fileno()).code
    if code not in {0, 1}:  # 1: a point failed; its row says why
        sys.exit(code)


def measure(csv: Path, dtypes: str) -> int:
    # Relative, as the rows record it: they say nothing of this machine's directories.
    kernels = os.path.relpath(ROOT / "examples" / "own_signature")
    gpubench(
        *("compare-cublas", "--rivals", "--kernels", kernels),
        *("--variants", ",".join(KERNELS), "--sizes", ",".join(map(str, SIZES))),
        *("--dtypes", dtypes, "--rounds", str(ROUNDS), "-o", csv, "--force"),
    )
    return 0


def table(csv: Path) -> int:
    """Each variant's fastest tile, in TFLOP/s, and percent of the better cuBLAS."""
    rows, parts = read(csv), []
    for dtype in DTYPES:
        timed = [row for row in rows if (row.compute_mode, row.status) == (dtype, "ok")]
        lines = []
        for name in dict.fromkeys(row.variant for row in timed):
            cells = ["" for _ in SIZES]
            for at, size in enumerate(SIZES):
                if of_size := [row for row in timed if (row.variant, row.n) == (name, size)]:
                    best = best_of(of_size)
                    part = f" ({best.percent_of_blas:.0f} %)" if best.percent_of_blas else ""
                    rate = f"{(best.gflops or 0.0) / 1e3:.1f}{part}"
                    cells[at] = "rounds disagree" if best.unstable else rate
            lines.append([f"`{name}`", *cells])
        parts.append(f"\n### {dtype}\n\n{markdown(['kernel', *map(str, SIZES)], lines)}")
    timed_at = {(row.variant, row.compute_mode, row.n) for row in rows if row.status == "ok"}
    failed = {
        (row.variant, f"{row.compute_mode} at {row.size}: {row.status}, {row.reason}")
        for row in rows
        if (row.variant, row.compute_mode, row.n) not in timed_at and not lacks(row)
    }
    print("\n".join((*parts, *(f"\n{name}: {why}" for name, why in sorted(failed)))))
    return 0


def lacks(row: Row) -> bool:
    """Whether its kernel does not have this precision."""
    return row.status == "skipped" and (row.reason or "").startswith("has no ")


def build(folder: Path) -> int:
    for name, tile, dtype in EXPORTS:
        gpubench(
            *("export", name, "--tile", tile, "--dtype", dtype, "--size", str(SIZE)),
            *("--arch", "sm_90", "--dir", folder, "--force"),
        )
        text = (folder / f"{name}.cu").read_text(encoding="utf-8")
        (command,) = re.findall(r"^//   (nvcc .*) && ", text, re.MULTILINE)
        if code := child(shlex.split(command), cwd=folder).code:
            return code
    return 0


def exports(folder: Path) -> int:
    times: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for _ in range(TURNS):
        for name, tile, dtype in EXPORTS:
            said = child([(folder / name).absolute()]).out
            found = re.search(r": ([\d.]+) us a launch", said)
            if found is None or "WRONG" in said:
                print(f"{name}: {said}")
                return 1
            csv = folder / f"{name}.csv"
            gpubench(
                *("sweep", "--variants", name, "--tiles", tile, "--dtypes", dtype),
                *("--device", "cuda", "--sizes", str(SIZE), "-o", csv, "--force"),
            )
            (row,) = read(csv)
            times[name].append((float(found[1]), row.median_us or 0.0))
    lines, worst = [], 0.0
    for name, pairs in times.items():
        theirs, ours = (statistics.median(column) for column in zip(*pairs, strict=True))
        lines.append([f"`{name}`", f"{theirs:.1f}", f"{ours:.1f}", f"{theirs / ours:.4f}"])
        worst = max(worst, abs(theirs / ours - 1))
    print(markdown(["kernel", "exported, µs", "gpubench, µs", "ratio"], lines), end="\n\n")
    return int(not verdict(worst <= LIMIT, f"exported programs within {worst:.1%} of gpubench"))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    what = {"table": table, "build": build, "exports": exports}
    parser.add_argument("what", choices=("measure", *what))
    parser.add_argument("path", type=Path)
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    asked = parser.parse_args()
    if asked.what == "measure":
        return measure(asked.path, asked.dtypes)
    return what[asked.what](asked.path)


if __name__ == "__main__":
    sys.exit(main())
