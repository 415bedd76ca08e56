"""The ladder on this machine's GPU: every step at 4096, its fastest steps at eight sizes.

    python benchmarks/ladder.py results/h200

Writes ladder.csv there, a sweep of every step at 4096×4096×4096; ladder_top.csv, the fastest steps
and cuBLAS at the sizes below, cold and hot; and ladder.md, a table of each. Operands are random in
[−1, 1], in float32 without TF32. Takes about two minutes. `--tables-only` reads the CSVs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from shared import GPUBENCH, child, markdown

from gpubench.commands.compare_cublas.ladder import steps
from gpubench.hardware.occupancy import occupancy
from gpubench.model import CudaVariant, Problem, Resources
from gpubench.plan.registry import choose
from gpubench.results.row import Row, read
from gpubench.view.tables import best_of, by_problem, milliseconds

EVERY_STEP = ("--ladder", "--sizes", "4096", "--budget", "25", "--launch-limit", "0.2")
"""Single-edge tiles of 1 and 2 take up to three seconds and are never the best."""

TOP = (
    *("--variants", "splitk,packed_panels", "--cache", "both", "--budget", "45"),
    *("--sizes", "1024,2048,4096,8192,16384,4096x4096x1000,1000,128x8192x8192"),
)
LIBRARIES = ("cublas", "cublaslt")


def best_rows(rows: Sequence[Row]) -> Iterator[dict[str, Row]]:
    """For each problem, the best tile of each variant."""
    for of_problem in by_problem(row for row in rows if row.status == "ok"):
        names = dict.fromkeys(row.variant for row in of_problem)
        yield {name: best_of(row for row in of_problem if row.variant == name) for name in names}


def ladder_table(rows: Sequence[Row]) -> str:
    """The steps, in order."""
    order, (best,) = steps(choose("gemm", "cuda", ())), best_rows(rows)
    lines = []
    for name in filter(best.__contains__, (*order, *LIBRARIES)):
        row, before = best[name], best.get(order.get(name, ""))
        time_us, held = row.median_us or 0.0, row.occupancy
        gain = f"{(before.median_us or 0.0) / time_us:.2f}×" if before else ""
        figures = (milliseconds(time_us), f"{row.gflops:,.0f}", f"{row.percent_of_blas:.1f}", gain)
        why = (row.registers or "", f"{held:.0%}" if held else "", limited_by(row))
        lines.append([name, row.tile, *figures, *why])
    heading = ["step", "tile", "ms", "GFLOP/s", "% of cuBLAS", "gain", "registers", "occupancy"]
    return markdown([*heading, "limited by"], lines)


def limited_by(row: Row) -> str:
    """The resources that limit the blocks on a multiprocessor, computed from the row's."""
    if not row.tile or not row.registers or not row.compute_capability:
        return ""
    (variant,) = choose(row.op, "cuda", (row.variant,))
    if not isinstance(variant, CudaVariant) or variant.tiles is None:
        return ""
    problem = Problem(op=row.op, m=row.m, n=row.n, k=row.k, dtype=row.dtype)
    launch = variant.launch(variant.tiles.read(row.tile), problem).main
    resources = Resources(
        registers=row.registers,
        local_bytes=row.local_bytes or 0,
        spill_bytes=0,
        shared_bytes=(row.shared_bytes or 0) - launch.shared_bytes,
    )
    major, minor = map(int, row.compute_capability.split("."))
    resident = occupancy((major, minor), resources, launch)
    return ", ".join(resident.limited_by) if resident else ""


def top_table(rows: Sequence[Row]) -> str:
    """A line per size and cache state: our best kernel against the faster of the libraries."""
    lines = []
    for best in best_rows(rows):
        library = best_of(row for name, row in best.items() if name in LIBRARIES)
        ours = best_of(row for name, row in best.items() if name not in LIBRARIES)
        disagree = library.unstable or ours.unstable
        ratio = (library.median_us or 0.0) / (ours.median_us or 1.0)
        cells = [library.size, library.cache, milliseconds(library.median_us), library.variant]
        cells += [milliseconds(ours.median_us), f"{ours.variant} {ours.tile}"]
        lines.append([*cells, "rounds disagree" if disagree else f"{ratio:.3f}"])
    heading = ["size", "cache", "cuBLAS, ms", "which", "ours, ms", "which", "of cuBLAS"]
    return markdown(heading, lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--tables-only", action="store_true", help="from existing CSVs")
    asked = parser.parse_args()
    every, top = asked.directory / "ladder.csv", asked.directory / "ladder_top.csv"
    for path, options in ((every, EVERY_STEP), (top, TOP)):
        if not asked.tables_only:
            words = (*GPUBENCH, "compare-cublas", *options, "--output", path, "--force")
            code = child(words, out=sys.stderr.fileno()).code
            if code not in {0, 1}:  # 1: a point failed; its row says why
                return code or 1
    rows = read(every)
    text = (
        f"# The float32 ladder on {rows[0].device}\n\n"
        f"Every step at 4096×4096×4096, cold cache:\n\n{ladder_table(rows)}\n\n"
        "The top of the ladder against the better of cuBLAS and a tuned cuBLASLt:\n\n"
        f"{top_table(read(top))}\n"
    )
    (asked.directory / "ladder.md").write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
