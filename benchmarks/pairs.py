"""Kernels and cuBLAS in turns at the power limit; and cuBLAS beside itself, six times.

Writes JSON: for each comparison the ratio, its 95 % interval, the times of all visits and the
seconds of heating. The comparisons of cuBLAS with itself show how wide the intervals are, and that
they hold 1. What the file has already is not measured again, so several calls can share the work,
of about seven minutes. Needs a GPU of compute capability 9.0.
"""

from __future__ import annotations

import argparse
import json
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

MIXED = "256x192x64/s3/cluster=1x2/group=16"
BYTES = "256x192x128/s3/cluster=1x2/group=16"
TF32 = "256x128x32/s4/cluster=1x2/group=8/pdl=0"
DMMA = "128x128x32/s3/cluster=2x1/group=6/pdl=0"

KERNELS = [
    ("bfloat16", 2048, "wgmma_cluster",
     "128x256x64/s4/cluster=1x2/group=16/pdl=1/prefetch=0", "cublas"),
    ("bfloat16", 4096, "wgmma_deferred", "128x256x64/s4/cluster=2x1/group=8", "cublas"),
    ("bfloat16", 4096, "wgmma_mixed", MIXED, "cublaslt"),
    ("bfloat16", 8192, "wgmma_mixed", "256x192x64/s3/cluster=1x2/group=8", "cublas"),
    ("bfloat16", 16384, "wgmma_mixed", MIXED, "cublaslt"),
    ("float16", 4096, "wgmma_mixed", MIXED, "cublaslt"),
    ("float16", 8192, "wgmma_mixed", MIXED, "cublaslt"),
    ("float32", 4096, "packed_panels", "128x256x64/16x8/s2", "cublas"),
    ("float32", 4096, "packed_panels", "128x256x64/16x8/s2", "cublaslt"),
    ("tf32", 2048, "wgmma_tf32", TF32, "cublas"),
    ("tf32", 4096, "wgmma_tf32", TF32, "cublas"),
    ("tf32", 8192, "wgmma_tf32_wide", "232x192x32/s4/cluster=2x1/group=3", "cublaslt"),
    ("float64", 1024, "dmma", "64x128x32/s4/cluster=1x1/group=12/pdl=1", "cublas"),
    ("float64", 2048, "dmma", DMMA, "cublas"),
    ("float64", 4096, "dmma", DMMA, "cublas"),
    ("float64", 4096, "dmma", DMMA, "cublaslt"),
    ("float64", 8192, "dmma", DMMA, "cublas"),
    ("float8_e4m3", 4096, "wgmma_mixed_bytes", BYTES, "cublas"),
    ("float8_e4m3", 8192, "wgmma_mixed_bytes", BYTES, "cublas"),
    ("float8_e4m3", 8192, "wgmma_mixed_bytes", BYTES, "cublaslt"),
    ("float8_e4m3_split", 4096, "wgmma_split",
     "256x128x128/s4/cluster=1x2/group=8/promote=128", "cublaslt"),
    ("int8", 4096, "wgmma_mixed_bytes", BYTES, "cublaslt"),
    ("int8", 8192, "wgmma_mixed_bytes", BYTES, "cublaslt"),
]  # fmt: skip
"""Mode, size, kernel, tile, library: the squares of docs/ladder.md that were measured sustained,
and what was fastest in tensor.csv and precisions.csv."""


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
    if arguments.output.exists():
        content = json.loads(arguments.output.read_text())
    has = {(pair["first"], pair["second"]) for pair in content["kernels"]}
    with local_pool("cuda") as pool:
        for mode, size in SELF[len(content["itself"]) :]:
            point = point_of(pool, mode, size, "cublas", "")
            content["itself"].append(compared(pool, point, point))
            save(arguments.output, content)
            print(content["itself"][-1], flush=True)
        for mode, size, variant, tile, library in KERNELS:
            kernel = point_of(pool, mode, size, variant, tile)
            other = point_of(pool, mode, size, library, "")
            if (kernel.label, other.label) in has:
                continue
            content["kernels"].append(compared(pool, kernel, other))
            save(arguments.output, content)
            print(content["kernels"][-1], flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
