"""Kernels and cuBLAS in turns at the power limit; and cuBLAS beside itself, six times.

Writes JSON: for each comparison the ratio, its 95 % interval, the times of all visits and the
seconds of heating. The comparisons of cuBLAS with itself show how wide the intervals are, and that
they hold 1. Needs a GPU of compute capability 9.0.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from shared import save

from gpubench.engine.pool import LocalPool, local_pool
from gpubench.engine.prepare import prepare
from gpubench.model import Point, Timing
from gpubench.options import read_sweep
from gpubench.stats.pairs import ratio_of_pairs

SELF = [("bfloat16", 4096), ("bfloat16", 8192)] * 3

KERNELS = [
    ("bfloat16", 4096, "wgmma_deferred", "128x256x64/s4/cluster=2x1/group=8", "cublas"),
    ("float32", 4096, "packed_panels", "128x256x64/16x8/s2", "cublas"),
    ("float8_e4m3", 8192, "wgmma_mixed_bytes", "256x192x128/s3/cluster=1x2/group=16", "cublas"),
    ("tf32", 4096, "wgmma_tf32", "256x128x32/s4/cluster=1x2/group=8/pdl=0", "cublas"),
    ("float64", 4096, "dmma", "128x128x32/s3/cluster=2x1/group=6/pdl=0", "cublas"),
    ("int8", 8192, "wgmma_mixed_bytes", "256x192x128/s3/cluster=1x2/group=16", "cublaslt"),
    ("bfloat16", 8192, "wgmma_deferred", "128x256x64/s4/cluster=2x1/group=8", "cublas"),
    ("float16", 4096, "wgmma_mixed", "256x192x64/s3/cluster=1x2/group=16", "cublas"),
]
"""Mode, size, kernel, tile, library: the configurations that were fastest in precisions.csv."""


def point_of(pool: LocalPool, mode: str, size: int, variant: str, tile: str) -> Point:
    """Return a sustained point."""
    given = {"dtypes": mode, "sizes": str(size), "variants": variant, "state": "sustained"}
    sweep = read_sweep({**given, "device": "cuda", **({"tiles": tile} if tile else {})})
    (point,) = prepare(replace(sweep, timing=Timing(rounds=1)), pool.device).points
    return point


def compared(pool: LocalPool, first: Point, second: Point) -> dict[str, Any]:
    """Measure two points in turns. The ratio is the speed of the first relative to the second."""
    times = pool.measure_pairs(first, second)
    if isinstance(times, str):
        return {"first": first.label, "second": second.label, "failed": times}
    ratio, low, high = ratio_of_pairs(times.library_times_us, times.times_us)
    return {
        "first": first.label,
        "second": second.label,
        "ratio": ratio,
        "low": low,
        "high": high,
        "heated_s": times.heated_s,
        "first_us": times.times_us,
        "second_us": times.library_times_us,
        "first_joules": times.joules,
        "second_joules": times.library_joules,
    }


def main() -> int:
    """Measure all comparisons, and write the file after each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=Path("pairs.json"))
    arguments = parser.parse_args()
    content: dict[str, list[dict[str, Any]]] = {"itself": [], "kernels": []}
    with local_pool("cuda") as pool:
        for mode, size in SELF:
            point = point_of(pool, mode, size, "cublas", "")
            content["itself"].append(compared(pool, point, point))
            save(arguments.output, content)
            print(content["itself"][-1], flush=True)
        for mode, size, variant, tile, library in KERNELS:
            kernel = point_of(pool, mode, size, variant, tile)
            other = point_of(pool, mode, size, library, "")
            content["kernels"].append(compared(pool, kernel, other))
            save(arguments.output, content)
            print(content["kernels"][-1], flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
