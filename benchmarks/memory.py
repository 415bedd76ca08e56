"""Does memory leak between points? Device memory in use after 5 points and after 500.

    python benchmarks/memory.py

Five problems and a hundred kernels, each kernel on all problems: after the first five points all
operands are loaded. The driver allocates pages of 2 MiB, and the code of the kernels that stay
loaded may need one more; exits 1 if more than that is added after the first five points.
"""

from __future__ import annotations

import sys
from itertools import islice

from cupy.cuda import runtime

from gpubench.backends import open_backend
from gpubench.measure.runner import Runner
from gpubench.model import Status, Timing
from gpubench.options import read_sweep
from gpubench.plan.sweep import plan

QUICK = Timing(rounds=1, min_samples=6, min_device_s=0.0, max_wall_s=0.01)
SMALL = 3
"""Edges of register_tile: larger ones need local memory, which the driver keeps."""

PAGE_BYTES = 2 * 2**20
CHECKPOINTS = (5, 50, 500)
"""Points after which the memory in use is read."""


def main() -> int:
    backend = open_backend("cuda")
    sweep = read_sweep(
        {
            "sizes": "64,128,256,512,1024",
            "tiles": "1..32",
            "variants": "naive_uncoalesced,naive,shared_tile,register_tile,cublas",
        }
    )
    by_kernel: dict[tuple[str, str], list] = {}
    for point, reason in plan(sweep, "cuda").items():
        if reason is None and (
            point.variant.name != "register_tile" or point.tile["edge"] <= SMALL
        ):
            by_kernel.setdefault((point.variant.name, str(point.tile)), []).append(point)
    points = [point for kernel in by_kernel.values() for point in kernel]
    backend.compile(points, lambda _built: None)
    backend.warm_up()
    runner = Runner(backend, QUICK, 1)
    used: dict[int, int] = {}
    for count, point in enumerate(islice(points, CHECKPOINTS[-1]), 1):
        if runner.measure(point).status != Status.OK:
            raise SystemExit(f"{point.label} was not measured")
        if count in CHECKPOINTS:
            free, total = runtime.memGetInfo()
            used[count] = total - free
            print(f"after {count:3} points: {used[count]:,} bytes in use")
    return int(used[CHECKPOINTS[-1]] > used[CHECKPOINTS[0]] + PAGE_BYTES)


if __name__ == "__main__":
    sys.exit(main())
