"""Timers that agreement.py compares: `agreement_timers.py NAME ANSWERS SIZES COLUMNS`.

The timer NAME measures every kernel at every size, such as `64,128`, and immediately writes each
reading into ANSWERS as a line of JSON. `events` fills only those of its columns that are named.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from pathlib import Path
from typing import Any, NamedTuple

from shared import SEED, bound, point

from gpubench.model import Problem

KERNELS = (("cublas", ""), ("naive", "32"), ("shared_tile", "16"), ("register_tile", "4"))
SIZES = (64, 128, 256, 512, 1024, 1536, 2048, 4096)

NCU_CALLS, RAW_CALLS, WARM_UP_CALLS = 15, 200, 10
PAIRED_LAUNCHES, PAIRED_SAMPLES = 16, 11
"""Number of launches per sample and of samples per point, for the launch gap."""

OWN_KERNELS = ("blocking_kernel", "timestamp_kernel")
"""Kernels of gpubench's timer, whose durations are ignored."""

PAIR_CALLS, PAIR_S = 200, 0.5
"""Maximum launches and seconds of a plain event pair at one point."""

MARKER = "gpubench_marker"
"""Kernel that runs before and after the calls of a point, to mark them in Nsight Compute's list."""

Call = Callable[[], None]


class Case(NamedTuple):
    """A kernel at a square size, in float32."""

    variant: str
    tile: str
    """Empty for a variant without tiles."""

    size: int

    def __str__(self) -> str:
        return " ".join(filter(None, (self.variant, self.tile, "at", str(self.size))))


def cases_of(sizes: Sequence[int]) -> list[Case]:
    """Return every kernel at every size."""
    return [Case(variant, tile, size) for size in sizes for variant, tile in KERNELS]


class Reading(NamedTuple):
    """Time of one case by one timer. Without `us`, `reason` says why."""

    column: str
    case: Case
    us: float | None = None
    kernels: int | None = None
    """Number of kernels per call, if the timer sees them."""

    reason: str = ""


class Time(NamedTuple):
    """Microseconds per call, and the number of its kernels if the timer sees them."""

    us: float | None
    kernels: int | None = None


Measure = Callable[[Any, Call], Time]
"""(backend, call) → its time."""


def synchronize() -> None:
    """Wait for the device."""
    import cupy

    cupy.cuda.get_current_stream().synchronize()


def measure_each(column: str, measure: Measure, sizes: Sequence[int]) -> Iterator[Reading]:
    """Measure every case by gpubench's kernels and operands, hot. A failure becomes a reason."""
    from gpubench.backends.cuda.backend import CudaBackend

    backend = CudaBackend(0)
    for case in cases_of(sizes):
        try:
            n = case.size
            problem = Problem(op="gemm", m=n, n=n, k=n, dtype="float32")
            kernel = bound(backend, point(case.variant, case.tile, problem))
            call: Call = next(kernel.rotation)
            backend.warm_up()  # generating operands let the clocks fall
            for _ in range(WARM_UP_CALLS):
                call()
            synchronize()
            taken = measure(backend, call)
        except Exception as error:  # any failure of a tool loses one reading
            yield Reading(column, case, reason=describe(error))
        else:
            yield Reading(column, case, taken.us, taken.kernels)


def gpubench_times(timer: str, sizes: Sequence[int], columns: Sequence[str]) -> Iterator[Reading]:
    """Yield the times that users of gpubench get, for columns such as `events_hot`."""
    import gpubench

    caches = [cache for cache in ("hot", "cold") if f"{timer}_{cache}" in columns]
    for variant, tile in KERNELS:
        rows: dict[tuple[int, str], Any] = {}
        failed = "gpubench gave no such row"
        try:
            frame = gpubench.sweep(
                sizes=list(sizes),
                tiles=tile or None,
                variants=variant,
                device="cuda",
                cache="both" if len(caches) > 1 else caches[0],
                timer=timer,
                rounds=1,
                seed=SEED,
            )
            rows = {(int(row["m"]), row["cache"]): row for row in frame.to_dict("records")}
        except Exception as error:  # loses the readings of this variant
            failed = describe(error)
        for size in sizes:
            for cache in caches:
                row = rows.get((size, cache), {"reason": failed})
                case, column, us = (
                    Case(variant, tile, size),
                    f"{timer}_{cache}",
                    row.get("median_us"),
                )
                if row.get("status") == "ok" and us and us > 0:  # NaN is not
                    yield Reading(column, case, float(us))
                else:
                    yield Reading(column, case, reason=str(row.get("reason") or row.get("status")))


class Records:
    """CUPTI's activity records of kernels, directly from cupti-python."""

    def __init__(self, *, clearing: bool = False) -> None:
        """`clearing` also records where memory is cleared, which libraries do before a kernel."""
        from cupti import cupti

        self._cupti = cupti
        self._kinds = [cupti.ActivityKind.CONCURRENT_KERNEL]
        self._kinds += [cupti.ActivityKind.MEMSET] * clearing
        self._spans: list[tuple[int, int, str]] = []
        cupti.activity_register_callbacks(lambda: (8 * 2**20, 0), self._completed)
        for kind in self._kinds:
            cupti.activity_enable(kind)

    def clear(self) -> None:
        """Drop the records so far."""
        self._cupti.activity_flush_all(1)
        self._spans.clear()

    def durations_ns(self) -> list[int]:
        """Return durations of the kernels since `clear`, in order, without those of the timer."""
        return [end - start for start, end in self.spans()]

    def spans(self) -> list[tuple[int, int]]:
        """Return starts and ends of the kernels since `clear`, without those of the timer."""
        synchronize()
        self._cupti.activity_flush_all(1)
        seen, deadline = -1, time.monotonic() + 2
        while len(self._spans) != seen and time.monotonic() < deadline:  # records may arrive late
            seen = len(self._spans)
            time.sleep(0.01)
            self._cupti.activity_flush_all(1)
        return [
            (start, end)
            for start, end, name in sorted(self._spans)
            if not any(own in name for own in OWN_KERNELS)
        ]

    def _completed(self, records: Sequence[Any]) -> None:
        self._spans += [
            (record.start, record.end, getattr(record, "name", ""))
            for record in records
            if record.kind in self._kinds
        ]


def raw_cupti(sizes: Sequence[int]) -> Iterator[Reading]:
    """Yield times by CUPTI's activity records."""
    records = Records()

    def measure(_backend: Any, call: Call) -> Time:
        records.clear()
        for _ in range(RAW_CALLS):
            call()
        return per_call(records.durations_ns(), RAW_CALLS)

    yield from measure_each("raw_cupti_hot", measure, sizes)


def paired_gap(sizes: Sequence[int]) -> Iterator[Reading]:
    """Yield the launch gap from both timers on the *same* launches.

    Between two runs, long kernels vary by more than a launch gap.
    """
    records = Records()

    def measure(backend: Any, call: Call) -> Time:
        gaps: list[float] = []
        kernels = 0
        for _ in range(PAIRED_SAMPLES):
            records.clear()
            void = backend.timers.events.void_samples
            (events_us,) = backend.timers.events.sample(repeat(call), PAIRED_LAUNCHES, 1)
            # CUPTI also records the launches of void samples, before those of the valid sample.
            samples = 1 + backend.timers.events.void_samples - void
            durations = records.durations_ns()
            kernels = len(durations) // (samples * PAIRED_LAUNCHES)
            of_good = durations[-kernels * PAIRED_LAUNCHES :]
            gaps.append(events_us - sum(of_good) / PAIRED_LAUNCHES / 1e3)
        return Time(statistics.median(gaps), kernels)

    yield from measure_each("paired_gap", measure, sizes)


def cupyx_benchmark(sizes: Sequence[int]) -> Iterator[Reading]:
    """Yield times by `cupyx.profiler.benchmark`."""
    from cupyx.profiler import benchmark

    def measure(_backend: Any, call: Call) -> Time:
        result = benchmark(call, name="call", n_repeat=PAIR_CALLS, max_duration=PAIR_S)
        return Time(statistics.median(map(float, result.gpu_times.ravel())) * 1e6)

    yield from measure_each("cupyx", measure, sizes)


def do_bench(sizes: Sequence[int]) -> Iterator[Reading]:
    """Yield times by `triton.testing.do_bench`, which flushes the L2 before every launch."""

    def measure(_backend: Any, call: Call) -> Time:
        import triton.testing  # here: after CuPy, so that both use CuPy's cuBLAS

        answer = triton.testing.do_bench(call, quantiles=[0.5])
        milliseconds = answer[0] if isinstance(answer, list | tuple) else answer
        return Time(float(milliseconds) * 1e3)

    yield from measure_each("do_bench", measure, sizes)


def event_pair(sizes: Sequence[int]) -> Iterator[Reading]:
    """Yield times by a pair of events around a launch, as in many scripts."""

    def measure(_backend: Any, call: Call) -> Time:
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
        return Time(statistics.median(times))

    yield from measure_each("event_pair", measure, sizes)


def launch_for_ncu(sizes: Sequence[int]) -> Iterator[Reading]:
    """Launch each case between two markers, for Nsight Compute to time.

    Loading and warming up stay outside the profiled range, so they are quick.
    """
    import cupy

    marker = cupy.RawKernel(f'extern "C" __global__ void {MARKER}() {{}}', MARKER)

    def measure(_backend: Any, call: Call) -> Time:
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

    yield from measure_each("launched", measure, sizes)


WORKERS: dict[str, Callable[[Sequence[int]], Iterator[Reading]]] = {
    "paired": paired_gap,
    "raw-cupti": raw_cupti,
    "cupyx": cupyx_benchmark,
    "do-bench": do_bench,
    "event-pair": event_pair,
    "launch": launch_for_ncu,
}


def per_call(durations_ns: Sequence[float], calls: int) -> Time:
    """Return the median call as the sum of its kernels. Raise ValueError if the counts differ."""
    kernels, rest = divmod(len(durations_ns), calls)
    if rest or not kernels:
        raise ValueError(f"{len(durations_ns)} kernels in {calls} calls")
    starts = range(0, len(durations_ns), kernels)
    sums = [sum(durations_ns[start : start + kernels]) for start in starts]
    return Time(statistics.median(sums) / 1e3, kernels)


def describe(error: BaseException) -> str:
    """Return an exception as one line."""
    first = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def main(name: str, path: str, sizes_text: str, columns: str) -> None:
    """Write the readings of a timer into a file, each as soon as it is taken."""
    sizes = [int(text) for text in sizes_text.split(",")]
    readings = (
        WORKERS[name](sizes) if name in WORKERS else gpubench_times(name, sizes, columns.split(","))
    )
    with Path(path).open("w", encoding="utf-8") as answers:
        for reading in readings:
            print(json.dumps(reading), file=answers, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
