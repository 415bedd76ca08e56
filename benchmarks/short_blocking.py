"""Is too short a blocking kernel noticed? Forces short ones on a real GPU and compares the times.

    python benchmarks/short_blocking.py

Times one kernel normally, then again while the timer believes that enqueuing takes no time, so that
its first blocking kernels end too early. Those samples must be void and taken again, and the times
the same.
Exits 1 if no sample was void or the times differ by more than 2 %.
"""

from __future__ import annotations

import statistics
import sys

from gpubench.backends.cuda.backend import CudaBackend
from gpubench.backends.cuda.timer import BlockedBatchTimer
from gpubench.measure.operands import make_inputs
from gpubench.model import Cache, Config, Point, Problem, Scope, Timer
from gpubench.plan.registry import choose

LAUNCHES, SAMPLES, REPEATS = 32, 20, 10
SAME = 0.02


class ForgetfulTimer(BlockedBatchTimer):
    """Forgets how long enqueuing takes before each series, and guesses a nanosecond."""

    def forget(self) -> None:
        """Make the next blocking kernel too short."""
        for recent_us in self._enqueue_us.values():
            recent_us.clear()
            recent_us.append(1e-3)


def main() -> int:
    backend = CudaBackend(0)
    backend.warm_up()
    problem = Problem(op="gemm", m=64, n=64, k=64, dtype="float32")
    operands = backend.load(problem, make_inputs(problem, 2006), cold=False)
    (variant,) = choose("gemm", "cuda", ["shared_tile"])
    kernel = backend.bind(
        Point(
            variant=variant,
            tile=Config.parse("16"),
            problem=problem,
            cache=Cache.HOT,
            scope=Scope.KERNEL,
            timer=Timer.EVENTS,
        ),
        operands,
    )
    backend.run(kernel)
    timer = ForgetfulTimer(backend.stream)
    timer.overhead_us = backend.timer.overhead_us
    timer.sample(kernel.rotation, LAUNCHES, SAMPLES)
    normal_us = statistics.median(timer.sample(kernel.rotation, LAUNCHES, SAMPLES))
    before = timer.void_samples
    times: list[float] = []
    for _ in range(REPEATS):
        timer.forget()
        times += timer.sample(kernel.rotation, LAUNCHES, SAMPLES)
    void = timer.void_samples - before
    forced_us = statistics.median(times)
    print(f"normal: {normal_us:.3f} µs per launch, {before} void samples")
    print(f"blocked too briefly {REPEATS} times: {forced_us:.3f} µs, {void} void samples retaken")
    return 0 if void and abs(forced_us / normal_us - 1) <= SAME else 1


if __name__ == "__main__":
    sys.exit(main())
