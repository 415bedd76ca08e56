"""Verifies every hand-written kernel on the GPU at odd sizes: all variants, tiles and dtypes.

    python benchmarks/right.py [--ops gemm,gemv,gemv_t,atax] [--dtypes float32,tf32]

gemm runs every legal tile (edges up to 32: larger register tiles take minutes to compile), of more
than 128 the default ones and every so many of the others. The
other operations run their default tiles at every combination of seven dimensions. Each point is
verified as in a sweep, and its one sample is ignored. Exits 1 if a point is wrong or fails. Takes
four minutes, mostly for compiling, unless `benchmarks/checks.py explain` ran before.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections import Counter

from gpubench.backends import open_backend
from gpubench.engine.pool import LocalPool
from gpubench.engine.prepare import prepare
from gpubench.engine.run import run
from gpubench.engine.runner import Runner
from gpubench.model import CORE_DTYPES, DTYPES, OPERATIONS, CallVariant, Timing, Variant
from gpubench.plan.registry import variants
from gpubench.plan.sweep import Sweep
from gpubench.results.row import Row

DIMENSIONS = (1, 7, 127, 128, 129, 1000, 12345)
GEMM_SIZES = (
    *((edge, edge, edge) for edge in (1, 7, 127, 128, 129, 509, 512)),
    *((33, 65, 17), (1, 1000, 3), (1000, 1, 77), (129, 260, 1000), (257, 130, 2049)),
    *((8, 8, 8), (16, 16, 16), (72, 72, 72), (1021, 516, 1020), (777, 1544, 264)),
    *((777, 1544, 272), (300, 72, 16)),
)
"""Primes, powers of two, one, less than a tile, rectangles; N odd, even and a multiple of 4, N and
K of 8, K of 16; K over many steps, and less than one."""

LARGEST_EDGE, MOST_TILES = 32, 128
QUICK = Timing(rounds=1, precision=1.0, min_samples=1, min_device_s=0.0, sample_us=1.0)


def sweeps(op: str, dtype: str, device: str) -> list[Sweep]:
    """The sweeps of an operation: for gemm one per variant, over all its tiles."""
    if OPERATIONS[op].has_k:
        return [
            Sweep(
                op=op,
                variants=(variant.name,),
                sizes=GEMM_SIZES,
                tiles=_quick_to_compile(variant),
                dtypes=(dtype,),
                timing=QUICK,
            )
            for variant in variants()
            if (variant.op, variant.backend) == (op, device) and dtype in variant.dtypes
            if not (isinstance(variant, CallVariant) and variant.libraries)  # the rivals
        ]
    if dtype not in CORE_DTYPES:
        return []
    sizes = tuple((m, n, 1) for m, n in itertools.product(DIMENSIONS, repeat=2))
    return [Sweep(op=op, sizes=sizes, dtypes=(dtype,), timing=QUICK)]


def _quick_to_compile(variant: Variant) -> tuple[str, ...]:
    """The legal tiles that compile in seconds; of many a part, with the default ones."""
    if variant.tiles is None:
        return ()
    legal = [str(tile) for tile in variant.tiles if tile.get("edge", 0) <= LARGEST_EDGE]
    if len(legal) <= MOST_TILES:
        return tuple(legal)
    defaults = map(str, variant.tiles.defaults)
    return tuple(dict.fromkeys((*defaults, *legal[:: -(-len(legal) // MOST_TILES)])))


def report(rows: list[Row]) -> None:
    """Print a line per variant: how its points ended, and the largest error."""
    for variant in dict.fromkeys(row.variant for row in rows):
        of_variant = [row for row in rows if row.variant == variant]
        counts = Counter(row.status for row in of_variant)
        worst = max((row.max_relative_error or 0.0 for row in of_variant), default=0.0)
        outcome = ", ".join(f"{count} {status}" for status, count in counts.items())
        print(f"  {variant:20} {outcome}; largest relative error {worst:.2g}", flush=True)


def main() -> int:
    """Verify all operations and dtypes, one after another."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--ops", default=",".join(OPERATIONS))
    parser.add_argument("--device", default="cuda")
    arguments = parser.parse_args()
    pool = LocalPool(Runner(open_backend(arguments.device)))
    failed: list[Row] = []
    for op, dtype in itertools.product(arguments.ops.split(","), arguments.dtypes.split(",")):
        start = time.perf_counter()
        rows = [
            row
            for sweep in sweeps(op, dtype, arguments.device)
            for row in run(prepare(sweep, pool.device), pool).rows
        ]
        print(f"{op} {dtype}, {time.perf_counter() - start:.1f} s")
        report(rows)
        failed += [row for row in rows if row.status not in {"ok", "skipped"}]
    for row in failed:
        print(f"{row.status}: {row.op} {row.label}: {row.reason}")
    print(f"{len(failed)} wrong or failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
