"""Find what the pauses between launches and the overhead of a sample depend on.

    python benchmarks/gaps.py register_tile -o h200/gaps/register_tile.json
    python benchmarks/gaps.py cublas -o h200/gaps/cublas.json
    python benchmarks/gaps.py overhead -o h200/gaps/overhead.json

Each command answers one question by several experiments:

- `register_tile`: why does `register_tile 4` at 1280 take longer than Nsight Compute reports?
- `cublas`: why is the launch gap of cuBLAS at 1536 3.6 µs, and that of large products 1.5 µs?
- `overhead`: what does the fixed time of a sample (`overhead_us`) depend on?

An experiment runs in a process of its own, and has a time limit. Its findings are saved as soon as
it ends, one per line of a JSON list. An experiment that fails leaves a finding with `error`, and
keeps what it found before. The script runs on any GPU that gpubench supports.
"""

from __future__ import annotations

import argparse
import csv
import ctypes
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise, repeat
from pathlib import Path
from time import monotonic, perf_counter, sleep
from typing import Any

import numpy as np
from agreement import find_ncu
from agreement_timers import describe
from shared import GPUBENCH, bound, child, point, save

from gpubench.model import Launch, Problem

Finding = dict[str, Any]
Call = Callable[[], None]

SOURCE = Path(__file__).with_suffix(".cu")

LIMIT_S = 40
"""Time limit of one experiment. Findings until then are kept."""

SAMPLES, ATTEMPTS = 9, 4
"""Number of samples of which the median is taken, and attempts at each: its blocking kernel may be
too short."""

ENQUEUE_US, ENQUEUE_LAUNCH_US = 80.0, 25.0
"""Blocking time of a sample, and its increase per launch: longer than Python takes to enqueue."""

WARM_LAUNCHES = 5

FEW_AND_MANY, PAIRED_SAMPLES = (4, 20), 5
"""Numbers of launches of the two samples whose difference shows the gap, and samples of each."""

NCU_PROCESSES, NCU_LAUNCHES = 3, 15
NCU_METRICS = ("gpu__time_duration.sum", "sm__cycles_elapsed.max")
NCU_MORE = (
    *("sm__cycles_elapsed.avg.per_second", "dram__bytes_read.sum", "dram__bytes_write.sum"),
    *("lts__t_sectors_op_read.sum", "lts__t_sectors_op_write.sum", "lts__t_sector_hit_rate.pct"),
)
"""Metrics of the last process alone. They need several passes over a kernel, which warm the cache
or flush it."""

REGISTER_TILE = ("register_tile", "4")
ASKED, CONTROL = 1280, 1024
"""The size whose time is to be explained, and a size that agrees."""

ALLOCATIONS, VISITS = 6, 3
SLEEPS_S = (0.0, 0.001, 0.01, 0.05)

CALL_SIZES = (512, 1024, 1280, 1408, 1536, 1664, 2048)
GAP_CASES = (
    *(("cublas", "", n) for n in CALL_SIZES),
    *(("shared_tile", "16", n) for n in (64, 1024, 1536, 2048)),
    *(("register_tile", "4", n) for n in (1024, 1280, 1536)),
)
MEGABYTES = (1, 4, 8, 16, 24, 32, 48, 64)
SPINS_US = (5, 50, 500)

DEVICE_KINDS = ("CONCURRENT_KERNEL", "MEMSET", "MEMCPY")
FACTS = (
    *("grid_x", "grid_y", "grid_z", "block_x", "cluster_x", "cluster_y", "registers_per_thread"),
    *("static_shared_memory", "dynamic_shared_memory", "shared_memory_executed", "launch_type"),
    *("shared_memory_carveout_requested", "local_memory_per_thread", "local_memory_total_v2"),
    *("bytes", "stream_id", "correlation_id"),
)
"""Fields of CUPTI's records that are kept, if a record has them."""

LAUNCH_COUNTS = (0, 1, 2, 3, 4, 8, 16, 32, 64)
BLOCKS_US = (100, 300, 1000, 5000)
CHAIN_LOADS, CHAIN_LINES, LINE_BYTES = 512, 2**15, 128

ONE_THREAD = Launch(grid=(1,), block=(1,))

PLACED = """int M, int N, int K, int* placed) {
  if (threadIdx.x + threadIdx.y == 0) {
    unsigned multiprocessor;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(multiprocessor));
    placed[blockIdx.y * gridDim.x + blockIdx.x] = multiprocessor;
  }
"""
"""The end of `register_tile`'s signature, and lines that record where each block runs."""

NEIGHBOURS = {
    "a process with an idle context": "import cupy; x = cupy.ones(2**24); x.sum().get()",
    "a process that computes on the GPU": "import cupy; x = cupy.ones(2**24); x.sum().get()",
    "processes that copy on all CPUs": "import numpy as np; x = np.ones(2**23); y = x.copy()",
}
"""What another process does before it is ready."""

WORK = {
    "a process with an idle context": "time.sleep(0.1)",
    "a process that computes on the GPU": "x.sum().get()",
    "processes that copy on all CPUs": "y[:] = x",
}
"""What it does from then on, again and again, until it is killed."""


class Bench:
    """A GPU with gpubench's stream."""

    def __init__(self, *, warm: bool = True) -> None:
        from gpubench.backends.cuda.backend import CudaBackend

        self.backend = CudaBackend(0)
        self.stream = self.backend.timers.stream
        major, minor = self.backend.device.compute_capability or (9, 0)
        self.architecture = f"sm_{major}{minor}"
        self.multiprocessors = self.backend.device.multiprocessors or 1
        if warm:
            self.backend.warm_up()

    def product(self, variant: str, tile: str, n: int) -> Call:
        """Return a launch of a float32 product on operands of its own. It has run a few times."""
        problem = Problem(op="gemm", m=n, n=n, k=n, dtype="float32")
        launch: Call = next(bound(self.backend, point(variant, tile, problem)).rotation)
        return self._warmed(launch)

    def kernel(self, source: Path, name: str, launch: Launch, *arguments: Any) -> Call:
        """Return a launch of a kernel of a file. Arguments are objects of ctypes."""
        from gpubench.backends.cuda.compile import compile_instance
        from gpubench.backends.cuda.launching import bind_launch, load_function

        function = load_function(compile_instance(source, name, self.architecture))
        return self._warmed(bind_launch(function, launch, arguments))

    def _warmed(self, launch: Call) -> Call:
        for _ in range(WARM_LAUNCHES):
            launch()
        self.stream.synchronize()
        return launch


def totals(
    stream: Any, launch: Call, launches: int, samples: int = SAMPLES, block_us: float | None = None
) -> Finding:
    """Return the time between two events around launches behind a blocking kernel.

    The time is not divided, and no overhead is subtracted. After a sample whose blocking kernel was
    too short, the next one blocks twice as long.
    """
    block_us = block_us or ENQUEUE_US + ENQUEUE_LAUNCH_US * launches
    times: list[float] = []
    clocks: list[float] = []
    for _ in range(ATTEMPTS * samples):
        stream.block(block_us)
        start = stream.record_start()
        for _ in range(launches):
            launch()
        stop = stream.record_stop()
        valid = not start.done
        stream.synchronize()
        if valid:
            times.append(stream.elapsed_us(start, stop))
            clocks += filter(None, [stream.clock_mhz(start, stop)])
        else:
            block_us *= 2
        if len(times) == samples:
            break
    if not times:
        raise RuntimeError(f"no blocking kernel of {block_us:g} µs was long enough")
    clock_mhz = round(statistics.median(clocks), 1) if clocks else None
    return {
        "launches": launches,
        "total_us": round(statistics.median(times), 3),
        "least_us": round(min(times), 3),
        "most_us": round(max(times), 3),
        "sm_mhz": clock_mhz,
    }


def period_us(stream: Any, launch: Call, few: int = 4, many: int = 20) -> float:
    """Return the time from launch to launch in a stream, free of the overhead of a sample."""
    less, more = (totals(stream, launch, launches)["total_us"] for launches in (few, many))
    return float(round((more - less) / (many - few), 3))


class Activities:
    """CUPTI's records of what the device did, and of calls into the driver."""

    def __init__(self, *kinds: str) -> None:
        from cupti import cupti

        self._cupti = cupti
        self._names = {int(getattr(cupti.ActivityKind, kind)): kind for kind in kinds}
        self._taken: list[Finding] = []
        cupti.activity_register_callbacks(lambda: (8 * 2**20, 0), self._completed)
        for kind in self._names:
            cupti.activity_enable(cupti.ActivityKind(kind))

    def disable(self) -> None:
        """Record nothing from now on."""
        for kind in self._names:
            self._cupti.activity_disable(self._cupti.ActivityKind(kind))

    def take(self) -> list[Finding]:
        """Return the records since the last call by their start, without those of the timer."""
        import cupy

        cupy.cuda.get_current_stream().synchronize()
        self._cupti.activity_flush_all(1)
        count, deadline = -1, monotonic() + 2
        while len(self._taken) != count and monotonic() < deadline:  # records may arrive late
            count = len(self._taken)
            sleep(0.02)
            self._cupti.activity_flush_all(1)
        taken, self._taken = self._taken, []
        own = ("blocking_kernel", "timestamp_kernel")
        kept = (one for one in taken if not any(name in one["name"] for name in own))
        return sorted(kept, key=lambda one: one["start"])

    def _completed(self, records: Sequence[Any]) -> None:
        for record in records:
            kind = self._names.get(int(record.kind))
            if kind:
                facts = {name: getattr(record, name, None) for name in FACTS}
                self._taken.append(
                    {
                        "kind": kind,
                        "name": self._name(record, kind),
                        "start": int(record.start),
                        "end": int(record.end),
                        **{name: int(fact) for name, fact in facts.items() if fact is not None},
                    }
                )

    def _name(self, record: Any, kind: str) -> str:
        if kind in {"DRIVER", "RUNTIME"}:
            domain = getattr(self._cupti.CallbackDomain, f"{kind}_API")
            try:
                return str(self._cupti.get_callback_name(domain, record.cbid))
            except Exception:  # another signature in another version
                return f"{kind} {record.cbid}"
        return str(getattr(record, "name", "") or "")


def behind_block(bench: Bench, launches: Sequence[Call]) -> None:
    """Enqueue launches behind a blocking kernel, so that they run back to back."""
    bench.stream.block(ENQUEUE_US + ENQUEUE_LAUNCH_US * 2 * len(launches))
    for launch in launches:
        launch()


def durations_us(taken: Sequence[Finding]) -> list[float]:
    """Return the execution time of each record."""
    return [round((one["end"] - one["start"]) / 1e3, 3) for one in taken]


def pauses_us(taken: Sequence[Finding]) -> list[float]:
    """Return the time from the end of each record to the start of the next."""
    return [round((after["start"] - before["end"]) / 1e3, 3) for before, after in pairwise(taken)]


def gap_on_same_launches(bench: Bench, activities: Activities, launch: Call) -> Finding:
    """Return the gap by events and CUPTI's records of the same launches, and CUPTI's pauses.

    The difference between samples of few and of many launches is free of a sample's overhead.
    """
    activities.take()
    launch()
    names = [f"{one['kind']} {one['name'][:70]}" for one in activities.take()]
    beyond_us: dict[int, float] = {}
    for launches in FEW_AND_MANY:
        above_us = []
        for _ in range(PAIRED_SAMPLES):
            total_us = totals(bench.stream, launch, launches, 1)["total_us"]
            # CUPTI also records the launches of void samples, before those of the valid sample.
            taken = activities.take()[-len(names) * launches :]
            above_us.append(total_us - sum(durations_us(taken)))
        beyond_us[launches] = statistics.median(above_us)
    few, many = FEW_AND_MANY
    return {
        "activities_of_a_call": names,
        "execution_us": round(sum(durations_us(taken)) / many, 3),
        "gap_us": round((beyond_us[many] - beyond_us[few]) / (many - few), 3),
        "pause_us": round(statistics.median(pauses_us(taken)), 3),
        "pauses_us": pauses_us(taken),
        "durations_us": durations_us(taken),
    }


# Question: register_tile at 1280


def register_tile_by_launches() -> Iterator[Finding]:
    """Compare the time per launch of samples with different numbers of launches."""
    bench = Bench()
    for n in (ASKED, CONTROL, 1536):
        launch = bench.product(*REGISTER_TILE, n)
        overhead_us = bench.backend.timers.events.overhead_us
        for launches in (1, 2, 5, 20, 60):
            finding = totals(bench.stream, launch, launches)
            each_us = round((finding["total_us"] - overhead_us) / launches, 3)
            yield {"n": n, **finding, "overhead_us": overhead_us, "us_per_launch": each_us}


def register_tile_after_a_pause() -> Iterator[Finding]:
    """Compare execution times after a launch, after a pause and after a flush of the cache.

    Nsight Compute pauses between launches.
    """
    bench = Bench()
    activities = Activities("CONCURRENT_KERNEL")
    timers = bench.backend.timers
    timers.allocate_flush_buffer()
    for n in (ASKED, CONTROL):
        launch = bench.product(*REGISTER_TILE, n)
        activities.take()
        behind_block(bench, [launch] * 30)
        yield {"n": n, "before": "a launch", "execution_us": durations_us(activities.take())}
        for pause_s in SLEEPS_S:
            clocks = []
            for _ in range(8):
                bench.stream.synchronize()
                sleep(pause_s)
                start = bench.stream.record_start()
                launch()
                stop = bench.stream.record_stop()
                bench.stream.synchronize()
                clocks.append(bench.stream.clock_mhz(start, stop))
            found = durations_us(activities.take())
            yield {"n": n, "before": f"{pause_s} s", "execution_us": found, "sm_mhz": clocks}
        for _ in range(8):
            timers.flush()
            launch()
        yield {"n": n, "before": "a flush", "execution_us": durations_us(activities.take())}


def register_tile_by_allocation() -> Iterator[Finding]:
    """Compare operands at different places in memory."""
    bench = Bench()
    for n in (ASKED, CONTROL):
        launches = [bench.product(*REGISTER_TILE, n) for _ in range(ALLOCATIONS)]
        visits: list[list[float]] = [[] for _ in launches]
        clocks: list[float | None] = []
        for _ in range(VISITS):
            for visited, launch in zip(visits, launches, strict=True):
                visited.append(period_us(bench.stream, launch, 1, 5))
                clocks.append(totals(bench.stream, launch, 1, 3)["sm_mhz"])
        yield {"n": n, "period_us_by_allocation": visits, "sm_mhz": clocks}


def register_tile_by_placement() -> Iterator[Finding]:
    """Count the blocks that each multiprocessor gets, behind other launches and after a pause.

    All blocks fit at once, so the multiprocessor with most blocks may set the time.
    """
    import cupy

    bench = Bench()
    activities = Activities("CONCURRENT_KERNEL")
    text = (SOURCE.parent.parent / "gpubench/kernels/gemm/register_tile.cu").read_text("utf-8")
    signature = "int M, int N, int K) {"
    if signature not in text:
        raise ValueError(f"register_tile.cu has no {signature!r}")
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "placed.cu"
        source.write_text(text.replace(signature, PLACED), encoding="utf-8")
        for n in (ASKED, CONTROL):
            edge = -(-n // 32)
            rng = np.random.default_rng(0)
            a, b = (cupy.asarray(rng.uniform(-1, 1, (n, n)).astype("f")) for _ in range(2))
            c = cupy.zeros((n, n), np.float32)
            shape = Launch(grid=(edge, edge), block=(8, 8))
            placed = [cupy.zeros(edge * edge, np.int32) for _ in range(8)]
            launches = [
                bench.kernel(
                    source,
                    "register_tile<float, 4>",
                    shape,
                    *(ctypes.c_void_p(array.data.ptr) for array in (a, b, c)),
                    *(ctypes.c_int(n) for _ in range(3)),
                    ctypes.c_void_p(where.data.ptr),
                )
                for where in placed
            ]
            for before in ("a launch", "a pause"):
                activities.take()
                if before == "a launch":
                    behind_block(bench, launches)
                else:
                    for launch in launches:
                        launch()
                        bench.stream.synchronize()
                        sleep(0.01)
                taken = activities.take()
                counts = [np.bincount(where.get()) for where in placed]
                yield {
                    "n": n,
                    "before": before,
                    "execution_us": durations_us(taken),
                    "most_blocks": [int(count.max()) for count in counts],
                    "multiprocessors": [int((count > 0).sum()) for count in counts],
                    "with_most": [int((count == count.max()).sum()) for count in counts],
                }


def register_tile_beside_ncu() -> Iterator[Finding]:
    """Time launches by events, between them let Nsight Compute time launches: one process."""
    import cupy

    bench = Bench()
    for n in (ASKED, CONTROL):
        launch = bench.product(*REGISTER_TILE, n)
        before = [totals(bench.stream, launch, launches) for launches in (1, 5)]
        cupy.cuda.runtime.profilerStart()
        for _ in range(NCU_LAUNCHES):
            launch()
        bench.stream.synchronize()
        cupy.cuda.runtime.profilerStop()
        after = [totals(bench.stream, launch, launches) for launches in (1, 5)]
        overhead_us = bench.backend.timers.events.overhead_us
        yield {"n": n, "events": before, "events_after": after, "overhead_us": overhead_us}


def under_ncu() -> Iterator[Finding]:
    """Yield the findings of `register_tile_beside_ncu` and Nsight Compute's, by process."""
    for process in range(NCU_PROCESSES):
        metrics = (*NCU_METRICS, *(NCU_MORE if process == NCU_PROCESSES - 1 else ()))
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder) / "ncu.csv"
            wrapper = (
                *(find_ncu(), "--log-file", str(log), "--metrics", ",".join(metrics), "--csv"),
                *("--page", "raw", "--print-units", "base", "--clock-control", "none"),
                *("--cache-control", "none", "--profile-from-start", "off"),
                *("--target-processes", "all"),
            )
            for finding in answers_of("register_tile_beside_ncu", wrapper):
                yield {"process": process, **finding}
            text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
        values = ncu_values(text, metrics)
        for metric, of_metric in values.items():
            by_size = {
                str(n): of_metric[index * NCU_LAUNCHES : (index + 1) * NCU_LAUNCHES]
                for index, n in enumerate((ASKED, CONTROL))
            }
            yield {"process": process, "metric": metric, **by_size}
        if not values:
            yield {"process": process, "error": f"Nsight Compute: {text[-500:]}"}


def ncu_values(text: str, metrics: Sequence[str]) -> dict[str, list[float]]:
    """Return the values of each metric in a log of `ncu --csv --page raw`, in the order of kernels.

    The unit of the log follows the metric's name.
    """
    rows = list(csv.DictReader(line for line in text.splitlines() if line.startswith('"')))
    if not rows:
        return {}
    units, *kernels = rows
    return {
        f"{metric} ({units[metric]})": [float(row[metric].replace(",", "")) for row in kernels]
        for metric in metrics
        if metric in units
    }


# Question: cuBLAS at 1536


def cublas_calls() -> Iterator[Finding]:
    """List what a call of cuBLAS does: kernels, memsets, calls of the driver."""
    bench = Bench()
    launches = {n: bench.product("cublas", "", n) for n in CALL_SIZES}
    activities = Activities(*DEVICE_KINDS, "DRIVER", "RUNTIME")
    for n, launch in launches.items():
        activities.take()
        launch()
        taken = activities.take()
        origin = min((one["start"] for one in taken if one["kind"] in DEVICE_KINDS), default=0)
        for one in taken:
            if one["kind"] in DEVICE_KINDS:
                one["execution_us"] = (one["end"] - one["start"]) / 1e3
                one["after_first_us"] = (one["start"] - origin) / 1e3
            one.pop("start")
            one.pop("end")
        on_device = [one for one in taken if one["kind"] in DEVICE_KINDS]
        calls = [one["name"] for one in taken if one["kind"] not in DEVICE_KINDS]
        yield {"n": n, "device": on_device, "calls": calls}


def gap_by_kernel() -> Iterator[Finding]:
    """Measure the gap of each kernel on the same launches, and the pauses that CUPTI records."""
    bench = Bench()
    launches = {case: bench.product(*case) for case in GAP_CASES}
    without_us = {case: period_us(bench.stream, launch) for case, launch in launches.items()}
    activities = Activities(*DEVICE_KINDS)
    for case, launch in launches.items():
        yield {
            "case": case,
            **gap_on_same_launches(bench, activities, launch),
            "period_us_without_cupti": without_us[case],
        }


def gap_by_neighbour() -> Iterator[Finding]:
    """Find whether a long gap comes before the kernel or after it."""
    bench = Bench()
    cases = {
        "cublas 1536": bench.product("cublas", "", 1536),
        "cublas 1024": bench.product("cublas", "", 1024),
        "shared_tile 64": bench.product("shared_tile", "16", 64),
        "shared_tile 2048": bench.product("shared_tile", "16", 2048),
    }
    activities = Activities(*DEVICE_KINDS)
    for first, second in (
        ("cublas 1536", "shared_tile 64"),
        ("cublas 1536", "cublas 1024"),
        ("shared_tile 2048", "shared_tile 64"),
        ("cublas 1536", "shared_tile 2048"),
    ):
        pair = [cases[first], cases[first], cases[second], cases[second]]
        activities.take()
        behind_block(bench, pair * 8)
        taken = activities.take()
        if len(taken) != 8 * len(pair):
            yield {"pair": (first, second), "error": f"{len(taken)} activities"}
            continue
        names = (first, first, second, second) * 8
        pauses: dict[str, list[float]] = {}
        for (before, after), pause_us in zip(pairwise(names), pauses_us(taken), strict=True):
            pauses.setdefault(f"{before} → {after}", []).append(pause_us)
        for steps, times in pauses.items():
            yield {
                "pair": (first, second),
                "pause": steps,
                "us": round(statistics.median(times), 3),
            }


def gap_by_traffic() -> Iterator[Finding]:
    """Compare gaps of kernels that only write, that only read, and that only take time."""
    import cupy

    bench = Bench()
    array = cupy.ones(max(MEGABYTES) * 2**20 // 4, np.float32)
    out = cupy.zeros(1, np.float32)
    whole = Launch(grid=(8 * bench.multiprocessors,), block=(256,))
    launches: dict[tuple[str, int], Call] = {}
    for megabytes in MEGABYTES:
        count = ctypes.c_longlong(megabytes * 2**20 // 16)
        pointer, target = ctypes.c_void_p(array.data.ptr), ctypes.c_void_p(out.data.ptr)
        launches["write MiB", megabytes] = bench.kernel(
            SOURCE, "write_memory", whole, pointer, count
        )
        launches["read MiB", megabytes] = bench.kernel(
            SOURCE, "read_memory", whole, pointer, count, target
        )
    mhz = bench.backend.device.sm_clock_mhz or 1000.0
    for spin_us in SPINS_US:
        cycles = ctypes.c_longlong(int(spin_us * mhz))
        launches["spin µs", spin_us] = bench.kernel(SOURCE, "spin", whole, cycles)
    activities = Activities("CONCURRENT_KERNEL")
    for (what, amount), launch in launches.items():
        yield {what: amount, **gap_on_same_launches(bench, activities, launch)}


# Question: the overhead of a sample


def overhead(stream: Any, samples: int = 50, *, one_by_one: bool = False) -> Finding:
    """Return `overhead_us` as `BlockedBatchTimer.calibrate` measures it, and what it comes from."""
    from gpubench.backends.cuda import timer as module

    timer = module.BlockedBatchTimer(stream)
    many = module.CALIBRATION_LAUNCHES
    medians = []
    for launches in (1, many):
        if one_by_one:
            times = [
                timer.sample(repeat(stream.launch_empty), launches, 1)[0] for _ in range(samples)
            ]
        else:
            times = timer.sample(repeat(stream.launch_empty), launches, samples)
        medians.append(statistics.median(times))
    one_us, many_us = medians
    return {
        "overhead_us": round((one_us - many_us) * many / (many - 1), 3),
        "one_us": round(one_us, 3),
        "empty_launch_us": round(many_us, 3),
        "sm_mhz": timer.take_clock_mhz(),
        "void": timer.void_samples,
    }


@contextmanager
def polling() -> Iterator[None]:
    """Read NVML in another thread, as fast as it answers."""
    import pynvml

    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    ended = threading.Event()

    def poll() -> None:
        while not ended.is_set():
            pynvml.nvmlDeviceGetPowerUsage(handle)
            pynvml.nvmlDeviceGetClockInfo(handle, 1)
            sleep(0.001)

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def neighbours(what: str) -> Iterator[None]:
    """Run other processes beside this one. Raise RuntimeError if one does not start."""
    program = (
        f"import time; {NEIGHBOURS[what]}\nprint('ready', flush=True)\nwhile True: {WORK[what]}"
    )
    count = (os.cpu_count() or 1) if "all CPUs" in what else 1
    with ExitStack() as stack:
        processes = [
            stack.enter_context(
                subprocess.Popen((sys.executable, "-c", program), stdout=subprocess.PIPE, text=True)
            )
            for _ in range(count)
        ]
        for process in processes:
            stack.callback(process.kill)
        for process in processes:
            if process.stdout is None or process.stdout.readline().strip() != "ready":
                raise RuntimeError(f"{what}: it did not start")
        yield


def overhead_by_state() -> Iterator[Finding]:
    """Compare overheads at other clocks, with other samples, and in other states of a process."""
    from gpubench.backends.cuda import timer as module

    bench = Bench(warm=False)
    stream = bench.stream
    yield {"when": "before any work", **overhead(stream)}
    bench.backend.warm_up()
    for _ in range(3):
        yield {"when": "after warm-up", **overhead(stream)}
    for samples in (1, 2, 9):
        yield {"when": f"{samples} samples", **overhead(stream, samples)}
    yield {"when": "one sample at a time", **overhead(stream, one_by_one=True)}
    margin = module.MARGIN
    for factor in (4, 20):
        module.MARGIN = margin * factor
        yield {"when": f"blocked {factor} times as long", **overhead(stream)}
    module.MARGIN = margin
    sleep(2)
    yield {"when": "after 2 s without work", **overhead(stream)}
    bench.backend.warm_up()
    with polling():
        yield {"when": "NVML is polled", **overhead(stream)}
    bench.product("cublas", "", 512)
    yield {"when": "cuBLAS is loaded", **overhead(stream)}
    held = hold_half()
    yield {"when": "half of the memory is allocated", **overhead(stream)}
    del held
    try:
        activities = Activities("CONCURRENT_KERNEL")
        yield {"when": "CUPTI records", **overhead(stream)}
        activities.disable()
        yield {"when": "CUPTI is disabled", **overhead(stream)}
    except Exception as error:  # CUPTI may be missing
        yield {"when": "CUPTI records", "error": describe(error)}


def hold_half() -> Any:
    """Return an allocation of half of the free device memory."""
    import cupy

    return cupy.zeros(cupy.cuda.runtime.memGetInfo()[0] // 2, np.uint8)


def overhead_beside_another() -> Iterator[Finding]:
    """Compare overheads beside other processes, on the GPU and on the CPUs."""
    bench = Bench()
    yield {"when": "alone", **overhead(bench.stream)}
    for what in NEIGHBOURS:
        try:
            with neighbours(what):
                found = overhead(bench.stream)
        except Exception as error:  # beside a busy process no sample may be valid
            found = {"error": describe(error)}
        yield {"when": f"beside {what}", **found}
    sleep(0.5)
    yield {"when": "alone again", **overhead(bench.stream)}


def overhead_by_parts() -> Iterator[Finding]:
    """Time samples of few launches, with and without timestamps, to see what takes the time.

    Also measure the latency of the host's memory from the GPU, which holds the driver's queue and
    the events' times.
    """
    import cupy

    from gpubench.backends.cuda import stream as module

    class Bare(module.CudaStream):
        """Records events without timestamps beside them."""

        def record_start(self) -> Any:
            start = self._next_timestamp()
            start.event.record(self._stream)
            return start

        record_stop = record_start

        def clock_mhz(self, _start: Any, _stop: Any) -> None:
            """Return None: there are no timestamps."""

    bench = Bench()
    streams = {"timestamps": bench.stream, "bare": Bare(bench.backend.device, bench.architecture)}
    for name, stream in streams.items():
        for launches in LAUNCH_COUNTS:
            yield {"events": name, **totals(stream, stream.launch_empty, launches, 25)}
        for block_us in BLOCKS_US:
            finding = totals(stream, stream.launch_empty, 1, 25, block_us)
            yield {"events": name, "block_us": block_us, **finding}
    order = np.random.default_rng(0).permutation(CHAIN_LINES)
    words = LINE_BYTES // 4
    chain = np.zeros((CHAIN_LINES, words), np.uint32)
    chain[order, 0] = np.roll(order, -1) * words
    pinned = cupy.cuda.alloc_pinned_memory(chain.nbytes)
    np.frombuffer(pinned, np.uint32, chain.size)[:] = chain.ravel()
    on_device, out = cupy.asarray(chain), cupy.zeros(1, np.uint32)
    for where, address in (("host", pinned.ptr), ("L2 cache", on_device.data.ptr)):
        arguments = ctypes.c_void_p(address), ctypes.c_int(CHAIN_LOADS)
        target = ctypes.c_void_p(out.data.ptr)
        chase = bench.kernel(module.SOURCE, "pointer_chase", ONE_THREAD, *arguments, target)
        total_us = totals(bench.stream, chase, 1, 5)["total_us"]
        yield {"memory": where, "us_per_load": round(total_us / CHAIN_LOADS, 4)}


def overhead_of_a_sweep() -> Iterator[Finding]:
    """Return the overhead that a sweep reports. Its rounds are processes of their own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.csv"
        command = (*GPUBENCH, "sweep", "--device", "cuda", "--variants", "shared_tile")
        chosen = ("--tiles", "16", "--sizes", "64,256", "--cache", "hot", "--rounds", "2")
        ended = child((*command, *chosen, "-o", path), timeout_s=LIMIT_S, err=subprocess.PIPE)
        if not path.exists():
            raise RuntimeError(f"exit status {ended.code}: {ended.last_line}")
        with path.open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                kept = ("m", "overhead_us", "sm_mhz", "median_us", "launches_per_sample")
                yield {name: row[name] for name in kept}


def machine() -> Iterator[Finding]:
    """Describe the machine: GPUs, their links, CPUs, memory."""
    queried = (
        "index,name,uuid,driver_version,pci.bus_id,pcie.link.gen.current,pcie.link.width.current"
    )
    for command in (
        ("nvidia-smi", f"--query-gpu={queried},clocks.sm,clocks.mem,power.draw", "--format=csv"),
        ("nvidia-smi", "topo", "-m"),
        ("lscpu",),
        ("uname", "-r"),
    ):
        try:
            ended = child(command, timeout_s=10, err=subprocess.STDOUT)
            yield {"command": " ".join(command), "lines": ended.out.splitlines()[:40]}
        except OSError as error:
            yield {"command": " ".join(command), "error": describe(error)}
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    yield {"CUDA_VISIBLE_DEVICES": visible, "cpus": os.cpu_count()}


Experiment = Callable[[], Iterator[Finding]]

QUESTIONS: dict[str, tuple[Experiment, ...]] = {
    "register_tile": (
        machine,
        register_tile_by_launches,
        register_tile_after_a_pause,
        register_tile_by_placement,
        register_tile_by_allocation,
        under_ncu,
    ),
    "cublas": (machine, cublas_calls, gap_by_kernel, gap_by_neighbour, gap_by_traffic),
    "overhead": (
        machine,
        overhead_by_state,
        overhead_by_parts,
        overhead_beside_another,
        overhead_of_a_sweep,
    ),
}
HERE = (machine, under_ncu, overhead_of_a_sweep)
"""Experiments that start their own processes, and need none."""

EXPERIMENTS: dict[str, Experiment] = {
    experiment.__name__: experiment
    for experiment in (*sum(QUESTIONS.values(), ()), register_tile_beside_ncu)
}


def answers_of(name: str, wrapper: Sequence[str] = ()) -> Iterator[Finding]:
    """Run an experiment in a process of its own, and yield its findings, also if it fails."""
    with tempfile.TemporaryDirectory() as folder:
        answers = Path(folder) / "answers.jsonl"
        answers.touch()
        command = (*wrapper, sys.executable, __file__, "--experiment", name, "-o", answers)
        ended = child(command, timeout_s=LIMIT_S, out=subprocess.DEVNULL, err=subprocess.PIPE)
        text = answers.read_text(encoding="utf-8").rpartition("\n")[0]  # without part of a line
    yield from map(json.loads, text.splitlines())
    if ended.code is None:
        yield {"error": f"killed after {LIMIT_S} s"}
    elif ended.code:
        yield {"error": f"exit status {ended.code}: {ended.last_line}"}


def answer(question: str, path: Path) -> int:
    """Run the experiments of a question; after each, save all findings."""
    path.parent.mkdir(parents=True, exist_ok=True)
    findings: list[Finding] = []
    for experiment in QUESTIONS[question]:
        name, started_s = experiment.__name__, perf_counter()
        try:
            answers = experiment() if experiment in HERE else answers_of(name)
            findings.extend({"experiment": name, **finding} for finding in answers)
        except Exception as error:  # the other experiments go on
            findings.append({"experiment": name, "error": describe(error)})
        mine = (finding for finding in findings if finding["experiment"] == name)
        errors = [finding["error"] for finding in mine if "error" in finding]
        print(f"{name}: {perf_counter() - started_s:.1f} s", *errors, sep="\n  ", flush=True)
        save(path, findings)
    return 0


def experiment_alone(name: str, path: Path) -> int:
    """Run an experiment in this process; write each finding as a line as soon as it is there."""
    with path.open("w", encoding="utf-8") as file:
        for finding in EXPERIMENTS[name]():
            print(json.dumps(finding, ensure_ascii=False), file=file, flush=True)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("question", nargs="?", choices=QUESTIONS)
    parser.add_argument("--experiment", choices=EXPERIMENTS, help="run it in this process")
    parser.add_argument("-o", "--output", type=Path, required=True)
    asked = parser.parse_args()
    if asked.experiment:
        return experiment_alone(asked.experiment, asked.output)
    if not asked.question:
        parser.error("state a question")
    return answer(asked.question, asked.output)


if __name__ == "__main__":
    sys.exit(main())
