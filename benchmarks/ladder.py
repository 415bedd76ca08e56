"""The ladder on this machine's GPU: every step at 4096, the top of it at eight sizes.

    python benchmarks/ladder.py --output results/h200

writes OUTPUT/ladder.csv, one sweep of every step at 4096×4096×4096; OUTPUT/ladder_top.csv, the top
steps and cuBLAS at the sizes below, cold and hot; and OUTPUT/ladder.md, tables of both. Rounds are
interleaved, operands random in [−1, 1], float32 without TF32. It takes about two minutes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from gpubench.cli import main as gpubench
from gpubench.commands.compare_cublas.ladder import steps
from gpubench.hardware.occupancy import Occupancy, occupancy
from gpubench.model import CudaVariant, Problem, Resources, Status, Tile
from gpubench.plan.registry import choose
from gpubench.row import Row, read
from gpubench.view.tables import best_of, milliseconds, problem_of

EVERY_STEP_AT = "4096"
SIZES = "1024,2048,4096,8192,16384,4096x4096x1000,1000,128x8192x8192"
TOP = ("splitk", "packed_panels")
LIBRARIES = ("cublas", "cublaslt")


def measure(arguments: Sequence[str]) -> None:
    """One `gpubench compare-cublas`; ends the program if it fails."""
    sys.argv = ["gpubench", "compare-cublas", *arguments, "--force"]
    try:
        gpubench()
    except SystemExit as end:
        if end.code:
            raise


def best_rows(rows: Sequence[Row]) -> Iterator[tuple[Row, ...]]:
    """For each problem, the best tile of each variant."""
    measured = [one for one in rows if one.status == Status.OK]
    for _, group in groupby(sorted(measured, key=problem_of), key=problem_of):
        of_problem = list(group)
        names = dict.fromkeys(one.variant for one in of_problem)
        yield tuple(best_of(one for one in of_problem if one.variant == name) for name in names)


def ladder_lines(rows: Sequence[Row]) -> Iterator[str]:
    """A table of the steps, in order."""
    order = steps(choose("gemm", "cuda", ()))
    (best,) = best_rows(rows)
    by_name = {one.variant: one for one in best}
    yield "| step | tile | ms | GFLOP/s | % of cuBLAS | gain | registers | occupancy | limited by |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    for name in (*order, *LIBRARIES):
        if name not in by_name:
            continue
        one, before = by_name[name], by_name.get(order.get(name, ""))
        gain = f"{before.median_us / one.median_us:.2f}×" if before else ""
        cells = (
            name,
            one.tile,
            milliseconds(one.median_us),
            f"{one.gflops:,.0f}",
            f"{one.percent_of_blas:.1f}",
            gain,
            str(one.registers or ""),
            f"{100 * one.occupancy:.0f} %" if one.occupancy else "",
            limited_by(one),
        )
        yield f"| {' | '.join(cells)} |"


def limited_by(one: Row) -> str:
    """What keeps more blocks from a multiprocessor."""
    found = resident(one)
    return ", ".join(found.limited_by) if found else ""


def resident(one: Row) -> Occupancy | None:
    """The occupancy of a row's kernel, worked out again from its resources."""
    if not one.tile or not one.registers or not one.compute_capability:
        return None
    (variant,) = choose(one.op, "cuda", (one.variant,))
    if not isinstance(variant, CudaVariant):
        return None
    problem = Problem(op=one.op, m=one.m, n=one.n, k=one.k, dtype=one.dtype)
    launch = variant.launch(Tile.parse(one.tile), problem).main
    resources = Resources(
        registers=one.registers,
        local_bytes=one.local_bytes or 0,
        spill_bytes=0,
        shared_bytes=(one.shared_bytes or 0) - launch.shared_bytes,
    )
    major, minor = map(int, one.compute_capability.split("."))
    return occupancy((major, minor), resources, launch)


def top_lines(rows: Sequence[Row]) -> Iterator[str]:
    """A line a size and cache state: the best of ours against the better of the libraries'."""
    yield "| size | cache | cuBLAS, ms | which | ours, ms | which | of cuBLAS |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for best in best_rows(rows):
        library = best_of(one for one in best if one.variant in LIBRARIES)
        ours = best_of(one for one in best if one.variant not in LIBRARIES)
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
    parser.add_argument("--output", type=Path, required=True, help="folder of the files")
    parser.add_argument("--tables-only", action="store_true", help="from the CSVs that are there")
    asked = parser.parse_args()
    steps_csv, top_csv = asked.output / "ladder.csv", asked.output / "ladder_top.csv"
    if not asked.tables_only:
        asked.output.mkdir(parents=True, exist_ok=True)
        measure(
            [
                *("--ladder", "--sizes", EVERY_STEP_AT, "--budget", "25"),
                # Single-edge tiles of 1 and 2 take up to three seconds, and are no step's best.
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
    (asked.output / "ladder.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
