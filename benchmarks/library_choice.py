"""How well the race chooses cuBLASLt's algorithm, beside three bare event pairs.

    python benchmarks/library_choice.py > results/h200/library_choice.md

Each problem is chosen for `REPEATS` times by the race that gpubench uses (`race.py`), and as often
by what it used before: the shortest of three launches of each algorithm, each between two events.
A choice's loss is its time over the fastest algorithm's, both medians of `JUDGING` interleaved
samples. Takes 20 s.
"""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import cupy

from gpubench.backends.cuda.backend import CudaBackend
from gpubench.backends.cuda.cublaslt import algorithms
from gpubench.backends.cuda.race import SAMPLE_US, race
from gpubench.measure.operands import make_inputs
from gpubench.model import Problem

REPEATS, JUDGING, TRIALS = 10, 60, 3

PROBLEMS = (
    *(("float32", size, cache) for size in (256, 512, 1024) for cache in ("hot", "cold")),
    *(("float32", 4096, "hot"), ("float64", 1024, "hot"), ("float16", 512, "hot")),
    *(
        ("tf32", 1024, "hot"),
        ("tf32", 4096, "hot"),
        ("bfloat16", 2048, "hot"),
        ("int8", 256, "hot"),
    ),
)

Launch = Callable[[], None]


class Field:
    """The algorithms of a problem on its operands."""

    def __init__(self, backend: CudaBackend, problem: Problem, *, cold: bool) -> None:
        self._backend = backend
        self._operands = backend.load(problem, make_inputs(problem, 2006), cold=cold)
        self._calls = [
            call for _, call in algorithms(problem.dtype, (problem.m, problem.k, problem.n))
        ]
        self.count = len(self._calls)

    def sample(self, algorithm: int, launches: int) -> float:
        """One sample by the timer, in microseconds per launch."""
        call, sets = self._calls[algorithm], self._operands.sets
        rotation = (partial(call, *sets[index]) for index in self._operands.rotation)
        return self._backend.timer.sample(rotation, launches, 1)[0]

    def pair_us(self, algorithm: int) -> float:
        """The shortest of three launches between two events, on the first set."""
        start, stop = cupy.cuda.Event(), cupy.cuda.Event()
        call: Launch = partial(self._calls[algorithm], *self._operands.sets[0])
        call()
        times = []
        for _ in range(TRIALS):
            start.record()
            call()
            stop.record()
            stop.synchronize()
            times.append(cupy.cuda.get_elapsed_time(start, stop) * 1e3)
        return min(times)

    def true_us(self) -> list[float]:
        """The median of each algorithm, all sampled in turns."""
        first_us = min(self.sample(algorithm, 1) for algorithm in range(self.count))
        launches = max(1, math.ceil(SAMPLE_US / first_us))
        turns = [
            [self.sample(algorithm, launches) for algorithm in range(self.count)]
            for _ in range(JUDGING)
        ]
        return [statistics.median(times) for times in zip(*turns, strict=True)]


def row(field: Field, label: str) -> str:
    """A line of the table."""
    took_s = []
    raced = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        raced.append(race(field.count, field.sample, 256))
        took_s.append(time.perf_counter() - started)
    paired = [
        min(range(field.count), key=[field.pair_us(one) for one in range(field.count)].__getitem__)
        for _ in range(REPEATS)
    ]
    true_us = field.true_us()
    cells: list[Any] = [label, field.count, f"{min(true_us):.2f}"]
    for choices in (raced, paired):
        losses = [100 * (true_us[choice] / min(true_us) - 1) for choice in choices]
        cells += [chosen(choices), f"{statistics.mean(losses):.1f}", f"{max(losses):.1f}"]
    cells += [f"{1e3 * statistics.median(took_s):.0f}"]
    return f"| {' | '.join(map(str, cells))} |"


def chosen(choices: Sequence[int]) -> str:
    """`3 ×8, 1 ×2`: the heuristic's numbers of what was chosen, and how often."""
    return ", ".join(f"{choice + 1} ×{times}" for choice, times in Counter(choices).most_common())


def main() -> int:
    backend = CudaBackend(0)
    backend.warm_up()
    print(f"# Choosing cuBLASLt's algorithm on an {backend.device.name}\n")
    print(f"{backend.device.versions['blas']}, {REPEATS} choices by each. Losses in percent.\n")
    print(
        "| problem | algorithms | fastest, µs | race chose | mean loss | worst loss "
        "| event pairs chose | mean loss | worst loss | race, ms |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for dtype, size, cache in PROBLEMS:
        problem = Problem(op="gemm", m=size, n=size, k=size, dtype=dtype)
        field = Field(backend, problem, cold=cache == "cold")
        print(row(field, f"{dtype} {size} {cache}"), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
