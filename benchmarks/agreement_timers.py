"""The timers that agreement.py compares, as workers: one process runs one timer.

`agreement_timers.py NAME REQUEST ANSWERS` runs the timer NAME over the cases in REQUEST (JSON) and
writes each reading into ANSWERS as a line of JSON, at once. agreement_readings.py
starts it.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import repeat
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

NCU_CALLS = 15
RAW_CALLS = 200
WARM_UP_CALLS = 10

PAIRED_LAUNCHES, PAIRED_SAMPLES = 16, 11
"""Launches in a sample, the same for every kernel, and samples at a point, for the launch gap."""

OWN_KERNELS = ("blocking_kernel", "timestamp_kernel")
"""Kernels of gpubench's timer, which are not measured."""

PAIR_CALLS, PAIR_S = 200, 0.5
"""Maximum launches and seconds of a plain event pair at one point."""

SEED = 2006
"""gpubench's default: operands are the same for every timer."""

MARKER = "gpubench_marker"
"""Kernel launched before and after the calls of a point, to find them in Nsight Compute's list."""

Call = Callable[[], None]


@dataclass(frozen=True, kw_only=True)
class Case:
    """One kernel at one square size, in float32."""

    variant: str
    tile: str
    """Empty for a variant without tiles."""

    size: int

    def __str__(self) -> str:
        return f"{self.variant} {self.tile} at {self.size}".replace("  ", " ")


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The time of one case by one timer. Without `us`, `reason` says why."""

    column: str
    case: Case
    us: float | None = None
    kernels: int | None = None
    """Kernels in a call, where the timer sees them."""

    reason: str = ""


class Time(NamedTuple):
    """Microseconds a call takes, and its kernels where the timer sees them."""

    us: float | None
    kernels: int | None = None


class Bench:
    """gpubench's own kernels on its own operands, hot: one set, used again by every call."""

    def __init__(self) -> None:
        from gpubench.backends.cuda.backend import CudaBackend

        self._backend = CudaBackend(0)
        self._size = 0
        self._operands: Any = None

    @property
    def timer(self) -> Any:
        """The blocked batch."""
        return self._backend.timer

    def call(self, case: Case) -> Call:
        """The case's launch, warmed up."""
        from gpubench.measure.operands import make_inputs
        from gpubench.model import Cache, Point, Problem, Scope, Timer
        from gpubench.plan.registry import choose

        n = case.size
        problem = Problem(op="gemm", m=n, n=n, k=n, dtype="float32")
        if n != self._size:
            self._operands = None
            inputs = make_inputs(problem, SEED)
            self._operands = self._backend.load(problem, inputs, cold=False)
            self._size = n
        (variant,) = choose("gemm", "cuda", [case.variant])
        point = Point(
            variant=variant,
            tile=variant.tiles.read(case.tile) if case.tile else None,
            problem=problem,
            cache=Cache.HOT,
            scope=Scope.KERNEL,
            timer=Timer.EVENTS,
        )
        launch: Call = next(self._backend.bind(point, self._operands).rotation)
        self._backend.warm_up()  # generating operands let the clocks fall
        for _ in range(WARM_UP_CALLS):
            launch()
        synchronize()
        return launch


Measure = Callable[[Bench, Call], Time]


def synchronize() -> None:
    """Wait for the device."""
    import cupy

    cupy.cuda.get_current_stream().synchronize()


def measure_each(column: str, cases: Sequence[Case], measure: Measure) -> Iterator[Reading]:
    """Measure every case, by size; what fails becomes a reading's reason."""
    bench = Bench()
    for case in sorted(cases, key=lambda case: case.size):
        try:
            taken = measure(bench, bench.call(case))
        except Exception as error:  # whatever a tool raises costs one reading
            yield Reading(column=column, case=case, reason=describe(error))
        else:
            yield Reading(column=column, case=case, us=taken.us, kernels=taken.kernels)


def gpubench_times(cases: Sequence[Case], timer: str, rounds: int) -> Iterator[Reading]:
    """Times as gpubench's users get them: `events` hot and cold, or `cupti` hot."""
    import gpubench

    cache_flag, caches = ("both", ("hot", "cold")) if timer == "events" else ("hot", ("hot",))
    for variant, tile in dict.fromkeys((case.variant, case.tile) for case in cases):
        of_tile = [case for case in cases if (case.variant, case.tile) == (variant, tile)]
        found: dict[tuple[str, int, str], dict[Any, Any]] = {}
        failed = "gpubench gave no such row"
        try:
            frame = gpubench.sweep(
                sizes=[case.size for case in of_tile],
                tiles=tile or None,
                variants=variant,
                device="cuda",
                cache=cache_flag,
                timer=timer,
                rounds=rounds,
                seed=SEED,
            )
            for row in frame.to_dict("records"):
                found[str(row["tile"]), int(row["m"]), str(row["cache"])] = row
        except Exception as error:  # costs this variant's readings
            failed = describe(error)
        for case in of_tile:
            for cache in caches:
                row = found.get((tile, case.size, cache), {"reason": failed})
                yield swept(f"{timer}_{cache}", case, row)


def swept(column: str, case: Case, row: dict[Any, Any]) -> Reading:
    """A row of gpubench's frame as a reading."""
    us = row.get("median_us")
    if row.get("status") == "ok" and us is not None and us > 0:  # NaN is not
        return Reading(column=column, case=case, us=float(us))
    return Reading(column=column, case=case, reason=str(row.get("reason") or row.get("status")))


class Records:
    """CUPTI's activity records of kernels, straight from cupti-python."""

    def __init__(self) -> None:
        from cupti import cupti

        self._cupti = cupti
        self._kind = cupti.ActivityKind.CONCURRENT_KERNEL
        self._spans: list[tuple[int, int, str]] = []
        cupti.activity_register_callbacks(lambda: (8 * 2**20, 0), self._completed)
        cupti.activity_enable(self._kind)

    def clear(self) -> None:
        """Drop the records so far."""
        self._cupti.activity_flush_all(1)
        self._spans.clear()

    def durations_ns(self) -> list[int]:
        """Of the kernels since `clear`, in the order they ran, without the timer's own."""
        synchronize()
        self._cupti.activity_flush_all(1)
        seen, deadline = -1, time.monotonic() + 2
        while len(self._spans) != seen and time.monotonic() < deadline:  # some come a moment later
            seen = len(self._spans)
            time.sleep(0.01)
            self._cupti.activity_flush_all(1)
        return [
            end - start
            for start, end, name in sorted(self._spans)
            if not any(own in name for own in OWN_KERNELS)
        ]

    def _completed(self, records: Sequence[Any]) -> None:
        self._spans += [
            (record.start, record.end, record.name)
            for record in records
            if record.kind == self._kind
        ]


def raw_cupti(cases: Sequence[Case]) -> Iterator[Reading]:
    """CUPTI's activity records."""
    records = Records()

    def measure(_bench: Bench, call: Call) -> Time:
        records.clear()
        for _ in range(RAW_CALLS):
            call()
        return per_call(records.durations_ns(), RAW_CALLS)

    yield from measure_each("raw_cupti_hot", cases, measure)


def paired_gap(cases: Sequence[Case]) -> Iterator[Reading]:
    """The launch gap from both timers on the *same* launches, so that no drift comes between.

    Long kernels vary between runs by more than a launch gap.
    """
    records = Records()

    def measure(bench: Bench, call: Call) -> Time:
        gaps, kernels = [], 0
        while len(gaps) < PAIRED_SAMPLES:
            records.clear()
            void = bench.timer.void_samples
            (events_us,) = bench.timer.sample(repeat(call), PAIRED_LAUNCHES, 1)
            durations = records.durations_ns()
            if bench.timer.void_samples == void:  # a void sample's launches are recorded too
                gaps.append(events_us - sum(durations) / PAIRED_LAUNCHES / 1e3)
                kernels = len(durations) // PAIRED_LAUNCHES
        return Time(median(gaps), kernels)

    yield from measure_each("paired_gap", cases, measure)


def cupyx_benchmark(cases: Sequence[Case]) -> Iterator[Reading]:
    """`cupyx.profiler.benchmark`."""
    from cupyx.profiler import benchmark

    def measure(_bench: Bench, call: Call) -> Time:
        result = benchmark(call, name="call", n_repeat=PAIR_CALLS, max_duration=PAIR_S)
        return Time(median(map(float, result.gpu_times.ravel())) * 1e6)

    yield from measure_each("cupyx", cases, measure)


def do_bench(cases: Sequence[Case]) -> Iterator[Reading]:
    """`triton.testing.do_bench`, which flushes the L2 before every launch."""

    def measure(_bench: Bench, call: Call) -> Time:
        import triton.testing  # here: after CuPy, so that both use CuPy's cuBLAS

        answer = triton.testing.do_bench(call, quantiles=[0.5])
        milliseconds = answer[0] if isinstance(answer, list | tuple) else answer
        return Time(float(milliseconds) * 1e3)

    yield from measure_each("do_bench", cases, measure)


def event_pair(cases: Sequence[Case]) -> Iterator[Reading]:
    """A pair of events around one launch, as in most scripts."""

    def measure(_bench: Bench, call: Call) -> Time:
        import cupy

        start, stop = cupy.cuda.Event(), cupy.cuda.Event()
        times: list[float] = []
        end_s = time.perf_counter() + PAIR_S
        while len(times) < PAIR_CALLS and time.perf_counter() < end_s:
            start.record()
            call()
            stop.record()
            stop.synchronize()
            times.append(cupy.cuda.get_elapsed_time(start, stop) * 1e3)
        return Time(median(times))

    yield from measure_each("event_pair", cases, measure)


def launch_for_ncu(cases: Sequence[Case]) -> Iterator[Reading]:
    """No timer: launches for Nsight Compute to time, each case's between two markers.

    Loading and warming up stay outside the profiled range, and so unprofiled and quick.
    """
    import cupy

    source = f'extern "C" __global__ void {MARKER}() {{}}'
    marker = cupy.RawKernel(source, MARKER)

    def measure(_bench: Bench, call: Call) -> Time:
        cupy.cuda.runtime.profilerStart()
        marker((1,), (1,), ())
        try:
            for _ in range(NCU_CALLS):
                call()
        finally:
            marker((1,), (1,), ())
            synchronize()
            cupy.cuda.runtime.profilerStop()
        return Time(None)

    yield from measure_each("launched", cases, measure)


WORKERS: dict[str, Callable[[Sequence[Case], int], Iterator[Reading]]] = {
    "events": lambda cases, rounds: gpubench_times(cases, "events", rounds),
    "cupti": lambda cases, rounds: gpubench_times(cases, "cupti", rounds),
    "paired": lambda cases, _: paired_gap(cases),
    "raw-cupti": lambda cases, _: raw_cupti(cases),
    "cupyx": lambda cases, _: cupyx_benchmark(cases),
    "do-bench": lambda cases, _: do_bench(cases),
    "event-pair": lambda cases, _: event_pair(cases),
    "launch": lambda cases, _: launch_for_ncu(cases),
}


def work(name: str, request: Path, answers: Path) -> None:
    """The worker's whole life."""
    settings = json.loads(request.read_text(encoding="utf-8"))
    cases = [Case(**case) for case in settings["cases"]]
    with answers.open("w", encoding="utf-8") as file:
        for reading in WORKERS[name](cases, settings["rounds"]):
            print(json.dumps(asdict(reading)), file=file, flush=True)


def per_call(durations_ns: Sequence[float], calls: int) -> Time:
    """The median call: the sum of its kernels. Raises ValueError if calls differ in kernels."""
    kernels, rest = divmod(len(durations_ns), calls)
    if rest or not kernels:
        raise ValueError(f"{len(durations_ns)} kernels in {calls} calls")
    sums = [
        sum(durations_ns[start : start + kernels]) for start in range(0, calls * kernels, kernels)
    ]
    return Time(median(sums) / 1e3, kernels)


def describe(error: BaseException) -> str:
    """An exception in a line."""
    first = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


if __name__ == "__main__":
    work(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
