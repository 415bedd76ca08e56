"""Rivals beside the ladder and cuBLAS, and exported programs beside gpubench.

    pip install ".[cuda13,triton]"
    python benchmarks/rivals.py build programs     # exports, by nvcc: no GPU needed
    python benchmarks/rivals.py rivals             # results/h200/rivals.csv; prints a table
    python benchmarks/rivals.py exports programs   # exported programs and gpubench, in turns

`rivals` times torch.mm, torch.compile, a Triton kernel, the SGEMM kernels of examples/own_signature
(float32, as they are) and the fastest kernels of each precision, in one sweep. `exports` exits with
1 if a program's median differs from gpubench's by more than 3 %, or its result is wrong.
"""

from __future__ import annotations

import argparse
import re
import shlex
import statistics
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from gpubench.row import Row, read

ROOT = Path(__file__).parents[1]
CSV = ROOT / "results" / "h200" / "rivals.csv"
SIZES = (1024, 2048, 4096, 8192)
DTYPES = ("bfloat16", "float16", "tf32", "float32")
KERNELS = ("sgemm", "packed_panels", "wgmma_persistent", "wgmma_mixed")

EXPORTS = (
    ("shared_tile", "32", "float32"),
    ("packed_panels", "128x256x64/16x8/s2", "float32"),
    ("wgmma_mixed", "256x192x64/s3/cluster=1x2/group=16", "bfloat16"),
)
SIZE, TURNS, LIMIT = 4096, 3, 0.03


def gpubench(*arguments: str) -> None:
    done = subprocess.run([sys.executable, "-m", "gpubench", *arguments], cwd=ROOT, check=False)
    if done.returncode not in {0, 1}:  # 1: a point was skipped or failed; its row says why
        sys.exit(done.returncode)


def rivals() -> None:
    gpubench(
        *("compare-cublas", "--rivals", "--kernels", "examples/own_signature"),
        *("--variants", ",".join(KERNELS), "--sizes", ",".join(map(str, SIZES))),
        *("--dtypes", ",".join(DTYPES), "-o", str(CSV), "--force"),
    )
    print(table(read(CSV)))


def table(rows: list[Row]) -> str:
    """Markdown: each variant's fastest tile, in TFLOP/s, and percent of the better cuBLAS."""
    best: dict[tuple[str, str, int], Row] = {}
    others: defaultdict[str, set[str]] = defaultdict(set)
    for row in rows:
        key = row.compute_mode, row.variant, row.n
        if row.status != "ok":
            others[row.variant].add(f"{row.compute_mode}: {row.status}, {row.reason}")
        elif key not in best or (row.median_us or 0) < (best[key].median_us or 0):
            best[key] = row
    lines = []
    for dtype in DTYPES:
        lines += [f"\n### {dtype}\n", f"| kernel | {' | '.join(map(str, SIZES))} |"]
        lines.append("| --- |" + " ---: |" * len(SIZES))
        names = dict.fromkeys(variant for kind, variant, _ in best if kind == dtype)
        for name in names:
            cells = []
            for size in SIZES:
                row = best.get((dtype, name, size))
                share = f" ({row.percent_of_blas:.0f} %)" if row and row.percent_of_blas else ""
                cells.append(f"{row.gflops / 1e3:.1f}{share}" if row and row.gflops else "")
            lines.append(f"| `{name}` | {' | '.join(cells)} |")
    for name, reasons in others.items():
        lines += [f"\n{name}: {reason}" for reason in sorted(reasons)]
    return "\n".join(lines)


def build(folder: Path) -> None:
    for name, tile, dtype in EXPORTS:
        gpubench(
            *("export", name, "--tile", tile, "--dtype", dtype, "--size", str(SIZE)),
            *("--arch", "sm_90", "--dir", str(folder.absolute()), "--force"),
        )
        text = (folder / f"{name}.cu").read_text(encoding="utf-8")
        (command,) = re.findall(r"^//   (nvcc .*) && ", text, re.MULTILINE)
        subprocess.run(shlex.split(command), cwd=folder, check=True)


def exports(folder: Path) -> int:
    times: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for _ in range(TURNS):
        for name, tile, dtype in EXPORTS:
            program = folder.absolute() / name
            said = subprocess.run([program], capture_output=True, text=True, check=False).stdout
            found = re.search(r": ([\d.]+) us a launch", said)
            if found is None or "WRONG" in said:
                print(f"{name}: {said}")
                return 1
            csv = folder.absolute() / f"{name}.csv"
            gpubench(
                *("sweep", "--variants", name, "--tiles", tile, "--dtypes", dtype),
                *("--sizes", str(SIZE), "-o", str(csv), "--force"),
            )
            (row,) = read(csv)
            times[name].append((float(found[1]), row.median_us or 0.0))
    worst = 0.0
    print("| kernel | exported, µs | gpubench, µs | ratio |\n| --- | ---: | ---: | ---: |")
    for name, pairs in times.items():
        ours, theirs = (statistics.median(column) for column in zip(*pairs, strict=True))
        print(f"| `{name}` | {ours:.1f} | {theirs:.1f} | {ours / theirs:.4f} |")
        worst = max(worst, abs(ours / theirs - 1))
    return int(worst > LIMIT)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("rivals", "build", "exports"))
    parser.add_argument("folder", nargs="?", type=Path, default=Path("programs"))
    given = parser.parse_args()
    if given.what == "rivals":
        rivals()
    elif given.what == "build":
        build(given.folder)
    else:
        sys.exit(exports(given.folder))


if __name__ == "__main__":
    main()
