"""Checks every hand-written kernel on the GPU at odd sizes: all variants, tiles and dtypes.

    python benchmarks/right.py [--ops gemm,gemv,gemv_t,atax] [--dtypes float32,float64,int32]

gemm runs every legal tile (edges to 32, as register_tile's larger ones take minutes to compile),
the others their default ones, at every combination of seven dimensions. Each point is verified as
in a sweep; the one sample that follows is not looked at. Exits 1 if a point is wrong or fails. Four
minutes, most of them compiling, unless `benchmarks/explain_agreement.py` ran before.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections import Counter

from gpubench.api import Silent
from gpubench.measure.executor import InProcess, open_backend
from gpubench.measure.session import run
from gpubench.model import OPERATIONS, Tile, Timing
from gpubench.plan.registry import choose
from gpubench.plan.sweep import Sweep
from gpubench.row import Row

DIMENSIONS = (1, 7, 127, 128, 129, 1000, 12345)
GEMM_SIZES = (
    *((edge, edge, edge) for edge in (1, 7, 127, 129, 509)),
    *((33, 65, 17), (1, 1000, 3), (1000, 1, 77), (129, 260, 1000), (257, 130, 2049)),
)
"""Primes, one, less than a tile, rectangles; N odd, even and a multiple of 4; K over many steps."""

LARGEST_EDGE = 32
QUICK = Timing(rounds=1, precision=1.0, min_samples=1, min_device_s=0.0, sample_us=1.0)


def sweeps(op: str, dtype: str, device: str) -> list[Sweep]:
    """What is checked of an operation: for gemm a sweep a variant, over all its tiles."""
    if OPERATIONS[op].has_k:
        return [
            Sweep(
                op=op,
                variants=(one.name,),
                sizes=GEMM_SIZES,
                tiles=tuple(filter(_quick_to_compile, one.tiles.legal)) if one.tiles else (),
                dtypes=(dtype,),
                timing=QUICK,
            )
            for one in choose(op, device, ())
            if dtype in one.dtypes
        ]
    sizes = tuple((m, n, 1) for m, n in itertools.product(DIMENSIONS, repeat=2))
    return [Sweep(op=op, sizes=sizes, dtypes=(dtype,), timing=QUICK)]


def _quick_to_compile(tile: Tile) -> bool:
    return len(tile.block) > 1 or tile.edge <= LARGEST_EDGE


def report(rows: list[Row]) -> None:
    """A line a variant: how its points ended, and the largest error."""
    for variant in dict.fromkeys(one.variant for one in rows):
        of_variant = [one for one in rows if one.variant == variant]
        counts = Counter(one.status for one in of_variant)
        worst = max((one.max_relative_error or 0.0 for one in of_variant), default=0.0)
        said = ", ".join(f"{count} {status}" for status, count in counts.items())
        print(f"  {variant:20} {said}; largest relative error {worst:.2g}", flush=True)


def main() -> int:
    """All ops and dtypes, one after the other."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--dtypes", default="float32,float64,int32")
    parser.add_argument("--ops", default=",".join(OPERATIONS))
    parser.add_argument("--device", default="cuda")
    arguments = parser.parse_args()
    executor = InProcess(open_backend(arguments.device))
    failed: list[Row] = []
    for op, dtype in itertools.product(arguments.ops.split(","), arguments.dtypes.split(",")):
        began = time.perf_counter()
        rows = [
            row
            for sweep in sweeps(op, dtype, arguments.device)
            for row in run(sweep, executor, Silent()).rows
        ]
        print(f"{op} {dtype}, {time.perf_counter() - began:.1f} s")
        report(rows)
        failed += [one for one in rows if one.status not in {"ok", "skipped"}]
    for one in failed:
        print(f"{one.status}: {one.op} {one.label}: {one.reason}")
    print(f"{len(failed)} wrong or failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
