"""The CPU as a backend: loops compiled by Numba, and NumPy's BLAS, timed by the host's clock."""

from __future__ import annotations

import hashlib
import platform
import re
import sys
import timeit
import tracemalloc
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import perf_counter, perf_counter_ns
from typing import Any

import msgspec
import numpy as np
import threadpoolctl

from gpubench.backends.calls import allocating, as_tensors, torch
from gpubench.backends.rotation import (
    OperandSets,
    Rotation,
    SetPolicy,
    first_rows,
    operand_factors,
    set_policy,
)
from gpubench.cache import keep, user_cache
from gpubench.errors import CompileError, LaunchError, with_place
from gpubench.hardware.host import cpu_threads
from gpubench.model import (
    CORE_DTYPES,
    CallVariant,
    Config,
    Device,
    Health,
    Launch,
    Point,
    Problem,
    Resources,
    Scope,
    Series,
)

UNKNOWN_CACHE_BYTES = 32 * 2**20
"""Assumed where the operating system does not say: a common last-level cache."""

MAX_SETS = 4096
"""Sets of operands: so many that only small problems need a flush, which takes tens of ms."""

WARM_UP_S = 0.05

COPY_BYTES = 2**28
REPEATS = 5

FMA_COUNT = 2**18
"""Turns of the loop of multiply-adds: a few milliseconds."""

FMA_REPEATS = 10

ALIGNMENT = 64
"""Of operands, in bytes: a cache line, so that every run starts from the same alignment."""


@dataclass(frozen=True, kw_only=True)
class CpuKernel:
    """A compiled function bound to operands."""

    function: Callable[..., None]
    """As the variant built it."""

    call: Callable[..., None]
    """What is timed: the function, or it between copies."""

    sets: tuple[tuple[Any, ...], ...]
    rotation: Rotation
    flush: bool
    thread_counts: tuple[int, ...]
    max_launches: int
    path: Path
    """The variant's description, for what it raises."""

    launch: Launch | None = None

    @property
    def resources(self) -> Resources | None:
        """What the function says of itself."""
        return getattr(self.function, "resources", None)

    @property
    def algorithm(self) -> str:
        """Likewise."""
        return str(getattr(self.function, "algorithm", ""))


class CpuBackend:
    """Runs `CallVariant`s that take NumPy arrays."""

    xp: Any = np
    notices: tuple[str, ...] = ()

    def __init__(
        self,
        device: Device | None = None,
        max_sets: int = MAX_SETS,
        clock_ns: Callable[[], int] = perf_counter_ns,
    ) -> None:
        self.device = device or describe_cpu()
        self._max_sets = max_sets
        self._clock_ns = clock_ns
        self._blas = threadpoolctl.ThreadpoolController()
        self._threads: tuple[Any, ...] = ()
        self._built: dict[tuple[str, str, Config | None, str], Callable[..., None] | str] = {}
        self._flush_buffer: np.ndarray | None = None

    def warm_up(self) -> None:
        """Keep a core busy for 50 ms, until its clock has settled."""
        values = np.ones(1 << 16)
        end_s = perf_counter() + WARM_UP_S
        while perf_counter() < end_s:
            values.sum()

    def copy_gbytes_per_s(self, copy_bytes: int = COPY_BYTES) -> float:
        """A copy in main memory on all threads: bytes read plus bytes written."""
        threads = cpu_threads()
        source = np.ones(copy_bytes, np.uint8)
        sources = np.array_split(source, threads)
        targets = np.array_split(np.empty_like(source), threads)
        with ThreadPoolExecutor(threads) as pool:  # NumPy releases Python's lock while it copies
            copy_s = min(
                timeit.repeat(
                    lambda: list(pool.map(np.copyto, targets, sources)), number=1, repeat=REPEATS
                )
            )
        return 2 * copy_bytes / copy_s / 1e9

    def parts(self) -> dict[str, float]:
        """A copy in main memory."""
        return {"copy": 2 * COPY_BYTES / self.copy_gbytes_per_s() / 1e3}

    def configuration(self) -> dict[str, Any]:
        """Its system."""
        return {"system": self.device.facts.get("system")}

    def ceilings(
        self,
        dtypes: Sequence[str] = CORE_DTYPES,
        copy_bytes: int = COPY_BYTES,
        *,
        kept: bool = False,
    ) -> dict[str, float]:
        """A copy in main memory, and multiply-adds in vector registers, on all threads.

        The highest rates are kept for this kind of CPU. `kept`: those will do, as far as there are
        any; it saves a second.
        """
        measures = {"measured_copy_gbytes_per_s": partial(self.copy_gbytes_per_s, copy_bytes)}
        for dtype in dtypes:
            measures[f"measured_{dtype}_fma_gflops"] = partial(self._fma_gflops, dtype)
        cpu = f"{self.device.name} {cpu_threads()} {copy_bytes}"
        path = user_cache("rates", f"{hashlib.sha256(cpu.encode()).hexdigest()[:32]}.json")
        known = _kept_rates(path)
        rates = {
            name: known[name] if kept and name in known else measure()
            for name, measure in measures.items()
        }
        highest = known | {name: max(rate, known.get(name, 0.0)) for name, rate in rates.items()}
        if highest != known:
            keep(path, msgspec.json.encode(highest))
        return rates

    def _fma_gflops(self, dtype: str) -> float:
        """The highest of several rates: what else runs on the machine only lowers one."""
        from gpubench.backends.cpu.multiply_add import multiply_adds, operations

        run, threads = multiply_adds(dtype), cpu_threads()

        def on_all(pool: ThreadPoolExecutor) -> None:
            list(pool.map(lambda _thread: run(FMA_COUNT, 1, 0), range(threads)))

        with ThreadPoolExecutor(threads) as pool:
            fastest_s = min(timeit.repeat(partial(on_all, pool), number=1, repeat=FMA_REPEATS))
        return threads * operations(dtype, FMA_COUNT) / fastest_s / 1e9

    def health(self) -> Health:
        """No readings: operating systems report a CPU's clock in different ways."""
        return Health()

    def usable(self) -> bool:
        """A call that fails ends itself or the process: the CPU stays usable."""
        return True

    def compile(self, points: Sequence[Point], on_built: Callable[[int], None]) -> None:
        """Build one instance after the other: Numba compiles under a lock."""
        wanted = {_instance(point): point for point in points}
        for count, point in enumerate(wanted.values(), 1):
            self._build(point)
            on_built(count)

    def bytes_needed(self, problem: Problem, *, cold: bool) -> int:
        """All sets of operands."""
        return problem.bytes * self._policy(problem, cold=cold).count

    def bytes_free(self) -> int:
        """Free and reclaimable main memory."""
        return _memory_bytes("MemAvailable") or 4 * 2**30

    def load(self, problem: Problem, inputs: Sequence[np.ndarray], *, cold: bool) -> OperandSets:
        """Copies of the operands, aligned to cache lines."""
        policy = self._policy(problem, cold=cold)
        output = np.zeros(problem.output_shape, problem.precision.result)
        sets = []
        for index in range(policy.count):
            arrays = tuple(
                _aligned_copy(array.T).T if by_columns else _aligned_copy(array)
                for array, by_columns in zip((*inputs, output), problem.by_columns, strict=True)
            )
            for array, factor in zip(arrays, operand_factors(problem, index), strict=False):
                array *= factor  # noqa: PLW2901 # in place
            sets.append(arrays)
        return OperandSets(
            problem=problem,
            given=tuple(inputs),
            sets=tuple(sets),
            rotation=Rotation(policy.count),
            policy=policy,
        )

    def bind(self, point: Point, operands: OperandSets, rows: int | None = None) -> CpuKernel:
        """The compiled function on the operands."""
        function, variant = self._build(point), _call_variant(point)
        if isinstance(function, str):
            raise CompileError(function)
        problem = replace(point.problem, m=min(rows or point.problem.m, point.problem.m))
        sets = tuple(first_rows(arrays, problem) for arrays in operands.sets)
        call = function
        if point.scope == Scope.END_TO_END:
            call = partial(_end_to_end, function, variant)
        else:
            sets = tuple(as_tensors(variant.tensors, arrays) for arrays in sets)
        return CpuKernel(
            function=function,
            call=call,
            sets=sets,
            rotation=operands.rotation,
            flush=operands.policy.flush,
            thread_counts=_thread_counts(variant),
            max_launches=operands.policy.max_launches,
            path=point.variant.path,
        )

    def fingerprints(self, operands: OperandSets) -> dict[int, int]:
        """Of the outputs that calls wrote into, by their sets."""
        return {
            index: zlib.crc32(_by_rows(operands.sets[index][-1]).view(np.uint8))
            for index in operands.rotation.used
        }

    def run(self, kernel: CpuKernel, launches: int = 1) -> float:
        """Call on the next sets: microseconds per call."""
        return self._time(kernel, kernel.rotation.take(launches))

    def watch(self, kernel: CpuKernel) -> str:
        """The memory that a call allocates: by NumPy, and by torch where it is loaded.

        Less than a result are Python's own objects, or scratch memory.
        """
        arrays = kernel.sets[next(kernel.rotation)]
        tracemalloc.start()
        try:
            _call(kernel, arrays)
            _, seen = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        if torch():
            with torch().autograd.profiler.profile(profile_memory=True) as profile:
                _call(kernel, arrays)
            events = profile.function_events
            seen = max(seen, sum(max(event.self_cpu_memory_usage, 0) for event in events))
        return allocating(seen if seen >= arrays[-1].nbytes else 0)

    def sample(self, kernel: CpuKernel, launches: int, count: int) -> list[float]:
        """Time batches of calls with the host's monotonic clock."""
        flush = self.flush if kernel.flush else None
        return [self._time(kernel, kernel.rotation.take(launches, flush)) for _ in range(count)]

    def sustain(self, kernel: CpuKernel, heat_s: float, timed_s: float) -> Series:
        """Call after call; nothing says what energy they take."""
        times_us: list[float] = []
        started = perf_counter()
        while (spent_s := perf_counter() - started) < heat_s + timed_s or not times_us:
            launch_us = self._time(kernel, kernel.rotation.take(1))
            if spent_s >= heat_s:
                times_us.append(launch_us)
        return Series(times_us=tuple(times_us), launches_per_sample=1, stop_reason="sustained")

    def _time(self, kernel: CpuKernel, indices: Sequence[int]) -> float:
        self._limit_threads(kernel.thread_counts[0])
        sets = [kernel.sets[index] for index in indices]
        start_ns = self._clock_ns()
        for arrays in sets:
            _call(kernel, arrays)
        return (self._clock_ns() - start_ns) / 1e3 / len(sets)

    def _build(self, point: Point) -> Callable[..., None] | str:
        """The compiled function of a point, or why it does not compile."""
        key = _instance(point)
        if key not in self._built:
            try:
                self._built[key] = _build(point)
            except Exception as error:  # whatever a kernel's author wrote
                self._built[key] = f"does not compile: {with_place(error, point.variant.path)}"
        return self._built[key]

    def _policy(self, problem: Problem, *, cold: bool) -> SetPolicy:
        return set_policy(problem, self.device.l2_bytes, cold=cold, max_sets=self._max_sets)

    def _limit_threads(self, threads: int) -> None:
        """Let BLAS use this number of threads; so do Numba and torch once they are loaded."""
        numba = sys.modules.get("numba")
        if (threads, torch(), numba) == self._threads:
            return
        if torch():
            torch().set_num_threads(threads)
        if numba:
            numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))
        self._blas.limit(limits=threads, user_api="blas")
        self._threads = threads, torch(), numba

    def flush(self) -> None:
        """Overwrite what the last-level cache holds."""
        if self._flush_buffer is None:
            self._flush_buffer = np.zeros(2 * self.device.l2_bytes, np.uint8)
        self._flush_buffer += 1


def _kept_rates(path: Path) -> dict[str, float]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, float])
    except (OSError, msgspec.MsgspecError):  # none yet, or damaged
        return {}


def describe_cpu() -> Device:
    """This machine's CPU, from /proc and /sys where they exist."""
    caches = _caches()
    blas = [info for info in threadpoolctl.threadpool_info() if info["user_api"] == "blas"]
    return Device(
        backend="cpu",
        name=_model_name(),
        multiprocessors=cpu_threads(),
        l2_bytes=max((size for _, size in caches), default=UNKNOWN_CACHE_BYTES),
        versions={"blas": f"{blas[0]['internal_api']} {blas[0]['version']}" if blas else ""},
        facts={
            "cores": cpu_threads(),
            "clock_mhz": _clock_mhz(),
            "memory_bytes": _memory_bytes("MemTotal"),
            "cache_bytes": dict(caches),
            "machine": platform.machine(),
            "system": f"{platform.system()} {platform.release()}",
            "blas": [
                {key: info.get(key) for key in ("internal_api", "version", "num_threads")}
                for info in blas
            ],
        },
    )


def _thread_counts(variant: CallVariant) -> tuple[int, ...]:
    """All CPUs, then each power of two below, for a variant that leaves it open."""
    cpus = cpu_threads()
    powers = (1 << exponent for exponent in reversed(range((cpus - 1).bit_length())))
    return (variant.threads,) if variant.threads else (cpus, *powers)


def _build(point: Point) -> Callable[..., None]:
    """The compiled function; Numba keeps it for later processes if it can."""
    build = _call_variant(point).build
    try:
        return build(point.tile, point.problem.dtype)
    except (OSError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "cannot cache function" not in str(error):
            raise
        from numba.core.dispatcher import Dispatcher

        Dispatcher.enable_caching = lambda self: None  # type: ignore[method-assign] # noqa: ARG005 # called with self
        return build(point.tile, point.problem.dtype)


def _call(kernel: CpuKernel, arrays: tuple[np.ndarray, ...]) -> None:
    try:
        kernel.call(*arrays)
    except Exception as error:
        raise LaunchError(f"failed while running: {with_place(error, kernel.path)}") from error


def _end_to_end(call: Callable[..., None], variant: CallVariant, *arrays: np.ndarray) -> None:
    """Allocate, copy in, call, copy out, free."""
    *inputs, output = arrays
    result = np.zeros_like(output) if variant.reads_output else np.empty_like(output)
    call(*as_tensors(variant.tensors, (*(array.copy() for array in inputs), result)))
    output[...] = result


def _instance(point: Point) -> tuple[str, str, Config | None, str]:
    return point.variant.op, point.variant.name, point.tile, point.problem.dtype


def _call_variant(point: Point) -> CallVariant:
    if not isinstance(point.variant, CallVariant):
        raise TypeError(f"{point.label} does not run on the CPU")
    return point.variant


def _aligned_copy(array: np.ndarray) -> np.ndarray:
    memory = np.empty(array.nbytes + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    copy = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def _by_rows(array: np.ndarray) -> Any:
    """The array, or its transpose where that is what lies in memory row by row."""
    return array if array.flags.c_contiguous else array.T


def _model_name() -> str:
    match = re.search(r"^model name\s*:\s*(.+)$", _text("/proc/cpuinfo"), re.MULTILINE)
    return match[1].strip() if match else platform.processor() or platform.machine()


def _clock_mhz() -> float | None:
    """The highest clock, where the system says it; else the clock of the first CPU now."""
    highest = _text("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq").strip()
    if highest.isdecimal():
        return int(highest) / 1e3
    match = re.search(r"^cpu MHz\s*:\s*([\d.]+)", _text("/proc/cpuinfo"), re.MULTILINE)
    return float(match[1]) if match else None


def _memory_bytes(name: str) -> int | None:
    match = re.search(rf"{name}:\s+(\d+) kB", _text("/proc/meminfo"))
    return int(match[1]) * 1024 if match else None


def _caches() -> list[tuple[str, int]]:
    """Data and unified caches of the first CPU: name and bytes."""
    caches = []
    for directory in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        kind = _text(directory / "type").strip()
        size = re.fullmatch(r"(\d+)([KM])", _text(directory / "size").strip())
        if size and kind in {"Data", "Unified"}:
            name = f"L{_text(directory / 'level').strip()}{'d' if kind == 'Data' else ''}"
            caches.append((name, int(size[1]) * {"K": 2**10, "M": 2**20}[size[2]]))
    return caches


def _text(path: str | Path) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
