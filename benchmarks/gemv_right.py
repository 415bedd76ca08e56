"""Checks every gemv, gemv_t and atax on the GPU: all variants, default tiles and odd dimensions.

`python benchmarks/gemv_right.py [--ops gemv,gemv_t,atax] [--dtypes float32,float64,int32]` takes
half a minute a dtype. Each point is verified as in a sweep; the few samples that follow are not
looked at. Exits 1 if a point is wrong or fails.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections import Counter

from gpubench.library import Silent
from gpubench.measure.executor import InProcess, open_backend
from gpubench.measure.session import run
from gpubench.plan.config import Sweep
from gpubench.table import Row
from gpubench.timing import Timing

OPS = ("gemv", "gemv_t", "atax")
DIMENSIONS = (1, 7, 127, 128, 129, 1000, 12345)
QUICK = Timing(rounds=1, precision=1.0, min_samples=1, min_device_s=0.0, sample_us=1.0)


def main() -> int:
    """All ops and dtypes, one after the other."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--dtypes", default="float32,float64,int32")
    parser.add_argument("--ops", default=",".join(OPS))
    parser.add_argument("--device", default="cuda")
    arguments = parser.parse_args()
    executor = InProcess(open_backend(arguments.device))
    sizes = tuple((m, n, 1) for m, n in itertools.product(DIMENSIONS, repeat=2))
    failed: list[Row] = []
    for op, dtype in itertools.product(arguments.ops.split(","), arguments.dtypes.split(",")):
        began = time.perf_counter()
        sweep = Sweep(op=op, sizes=sizes, dtypes=(dtype,), timing=QUICK)
        rows = run(sweep, executor, Silent()).rows
        print(f"{op} {dtype}, {time.perf_counter() - began:.1f} s")
        for variant in dict.fromkeys(one.variant for one in rows):
            of_variant = [one for one in rows if one.variant == variant]
            counts = Counter(one.status for one in of_variant)
            worst = max((one.max_relative_error or 0.0 for one in of_variant), default=0.0)
            said = ", ".join(f"{count} {status}" for status, count in counts.items())
            print(f"  {variant:20} {said}; largest relative error {worst:.2g}", flush=True)
            failed += [one for one in of_variant if one.status not in {"ok", "skipped"}]
    for one in failed:
        print(f"{one.status}: {one.op} {one.label}: {one.reason}")
    print(f"{len(failed)} wrong or failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
