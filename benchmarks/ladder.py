"""The ladder on this machine's GPU: every step at 4096, its fastest steps at eight sizes.

    python benchmarks/ladder.py --output results/h200

Writes OUTPUT/ladder.csv, a sweep of every step at 4096×4096×4096; OUTPUT/ladder_top.csv, the
fastest steps and cuBLAS at the sizes below, cold and hot; and OUTPUT/ladder.md, a table of each.
Operands are random in [−1, 1], in float32 without TF32. Takes about two minutes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from gpubench.cli import main as gpubench
from gpubench.commands.compare_cublas.ladder import steps
from gpubench.hardware.occupancy import Occupancy, occupancy
from gpubench.model import CudaVariant, Problem, Resources, Status
from gpubench.plan.registry import choose
from gpubench.row import Row, read
from gpubench.view.tables import best_of, milliseconds

EVERY_STEP_AT = "4096"
SIZES = "1024,2048,4096,8192,16384,4096x4096x1000,1000,128x8192x8192"
TOP = ("splitk", "packed_panels")
LIBRARIES = ("cublas", "cublaslt")


def measure(arguments: Sequence[str]) -> None:
    """Run `gpubench compare-cublas`; end the program if it fails."""
    sys.argv = ["gpubench", "compare-cublas", *arguments, "--force"]
    try:
        gpubench()
    except SystemExit as exit_:
        if exit_.code:
            raise


def best_rows(rows: Sequence[Row]) -> Iterator[tuple[Row, ...]]:
    """For each problem, the best tile of each variant."""
    measured = [row for row in rows if row.status == Status.OK]
    by_problem = attrgetter("problem_key")
    for _, group in groupby(sorted(measured, key=by_problem), key=by_problem):
        of_problem = list(group)
        names = dict.fromkeys(row.variant for row in of_problem)
        yield tuple(best_of(row for row in of_problem if row.variant == name) for name in names)


def ladder_lines(rows: Sequence[Row]) -> Iterator[str]:
    """A table of the steps, in order."""
    order = steps(choose("gemm", "cuda", ()))
    (best,) = best_rows(rows)
    by_name = {row.variant: row for row in best}
    yield "| step | tile | ms | GFLOP/s | % of cuBLAS | gain | registers | occupancy | limited by |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    for name in (*order, *LIBRARIES):
        if name not in by_name:
            continue
        row, before = by_name[name], by_name.get(order.get(name, ""))
        gain = f"{before.median_us / row.median_us:.2f}×" if before else ""
        cells = (
            name,
            row.tile,
            milliseconds(row.median_us),
            f"{row.gflops:,.0f}",
            f"{row.percent_of_blas:.1f}",
            gain,
            str(row.registers or ""),
            f"{100 * row.occupancy:.0f} %" if row.occupancy else "",
            limited_by(row),
        )
        yield f"| {' | '.join(cells)} |"


def limited_by(row: Row) -> str:
    """The resources that limit the blocks on a multiprocessor."""
    resident = occupancy_of(row)
    return ", ".join(resident.limited_by) if resident else ""


def occupancy_of(row: Row) -> Occupancy | None:
    """The occupancy of a row's kernel, computed again from its resources."""
    if not row.tile or not row.registers or not row.compute_capability:
        return None
    (variant,) = choose(row.op, "cuda", (row.variant,))
    if not isinstance(variant, CudaVariant):
        return None
    problem = Problem(op=row.op, m=row.m, n=row.n, k=row.k, dtype=row.dtype)
    launch = variant.launch(variant.tiles.read(row.tile), problem).main
    resources = Resources(
        registers=row.registers,
        local_bytes=row.local_bytes or 0,
        spill_bytes=0,
        shared_bytes=(row.shared_bytes or 0) - launch.shared_bytes,
    )
    major, minor = map(int, row.compute_capability.split("."))
    return occupancy((major, minor), resources, launch)


def top_lines(rows: Sequence[Row]) -> Iterator[str]:
    """A line per size and cache state: our best kernel against the faster of the libraries."""
    yield "| size | cache | cuBLAS, ms | which | ours, ms | which | of cuBLAS |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for best in best_rows(rows):
        library = best_of(row for row in best if row.variant in LIBRARIES)
        ours = best_of(row for row in best if row.variant not in LIBRARIES)
        cells = (
            library.size,
            library.cache,
            milliseconds(library.median_us),
            library.variant,
            milliseconds(ours.median_us),
            f"{ours.variant} {ours.tile}",
            f"{(library.median_us or 0.0) / (ours.median_us or 1.0):.3f}",
        )
        yield f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--output", type=Path, required=True, help="directory of the files")
    parser.add_argument("--tables-only", action="store_true", help="from existing CSVs")
    arguments = parser.parse_args()
    steps_csv, top_csv = arguments.output / "ladder.csv", arguments.output / "ladder_top.csv"
    if not arguments.tables_only:
        arguments.output.mkdir(parents=True, exist_ok=True)
        measure(
            [
                *("--ladder", "--sizes", EVERY_STEP_AT, "--budget", "25"),
                # Single-edge tiles of 1 and 2 take up to three seconds and are never the best.
                *("--launch-limit", "0.2"),
                *("--output", str(steps_csv)),
            ]
        )
        measure(
            [
                *("--variants", ",".join(TOP), "--sizes", SIZES, "--cache", "both"),
                *("--budget", "45", "--output", str(top_csv)),
            ]
        )
    every, top = read(steps_csv), read(top_csv)
    lines = [
        f"# The float32 ladder on {every[0].device}",
        "",
        f"Every step at {EVERY_STEP_AT}×{EVERY_STEP_AT}×{EVERY_STEP_AT}, cold cache:",
        "",
        *ladder_lines(every),
        "",
        "The top of the ladder against the better of cuBLAS and a tuned cuBLASLt:",
        "",
        *top_lines(top),
    ]
    (arguments.output / "ladder.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
