"""Time register_tile 4 at several places in memory, by events and by CUPTI on the same launches.

python benchmarks/placement.py
"""

from __future__ import annotations

import statistics
from itertools import repeat
from typing import Any

from agreement_timers import Records
from shared import bound, point

from gpubench.model import Problem

SIZES, ALLOCATIONS = (640, 576, 672), 10


def both(backend: Any, call: Any, launches: int, samples: int) -> tuple[float, float]:
    """Return the median time of a launch by events and by CUPTI's records."""
    by_events, by_cupti = [], []
    for _ in range(samples):
        RECORDS.clear()
        (time_us,) = backend.timers.events.sample(repeat(call), launches, 1)
        durations = RECORDS.durations_ns()[-launches:]  # without those of void samples
        by_events.append(time_us)
        by_cupti.append(statistics.median(durations) / 1e3)
    return statistics.median(by_events), statistics.median(by_cupti)


if __name__ == "__main__":
    import cupy

    from gpubench.backends.cuda.backend import CudaBackend

    RECORDS = Records()
    gpu, kept = CudaBackend(0), []
    gpu.warm_up()
    for n in SIZES:
        problem = Problem(op="gemm", m=n, n=n, k=n, dtype="float32")
        for number in range(ALLOCATIONS):
            kernel = bound(gpu, point("register_tile", "4", problem))
            launch = next(kernel.rotation)
            for _ in range(10):
                launch()
            print(n, number, both(gpu, launch, 16, 5), both(gpu, launch, 1, 9))
            kept.append((kernel, cupy.empty((number % 4 * 2 + 1) * 2**17, "uint8")))
