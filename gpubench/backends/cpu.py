"""The CPU as a backend: loops compiled by Numba, and NumPy's BLAS, timed by the host's clock."""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import threadpoolctl

from gpubench.backends.sets import Rotation, SetPolicy, cut, set_policy
from gpubench.errors import CompileError, LaunchError, first_line
from gpubench.model import (
    CallVariant,
    Device,
    Health,
    Launch,
    Point,
    Problem,
    Resources,
    Scope,
    Tile,
)

UNKNOWN_CACHE_BYTES = 32 * 2**20
"""Assumed where the operating system does not say: a common last-level cache."""

MAX_SETS = 4096
"""Of operands: flushing the cache takes tens of milliseconds, so it is left to small problems."""

WARM_UP_S = 0.05

COPY_BYTES = 2**28
BLAS_EXTENT = 2048
REPEATS = 5

ALIGNMENT = 64
"""Of operands, in bytes: a cache line, so that every run starts from the same alignment."""


@dataclass(frozen=True, kw_only=True)
class CpuOperands:
    """Operands in main memory."""

    sets: tuple[tuple[np.ndarray, ...], ...]
    """Each set: the inputs, then the output."""

    rotation: Rotation
    policy: SetPolicy

    @property
    def inputs(self) -> tuple[np.ndarray, ...]:
        """The first set's inputs."""
        return self.sets[0][:-1]

    @property
    def output(self) -> np.ndarray:
        """The first set's output."""
        return self.sets[0][-1]


@dataclass(frozen=True, kw_only=True)
class CpuKernel:
    """A compiled function bound to operands."""

    call: Callable[..., None]
    sets: tuple[tuple[np.ndarray, ...], ...]
    rotation: Rotation
    flush: bool
    threads: int
    max_launches: int
    resources: Resources | None = None
    launch: Launch | None = None


class CpuBackend:
    """Runs `CallVariant`s that take NumPy arrays."""

    xp: Any = np
    notices: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.device = describe_cpu()
        self._blas = threadpoolctl.ThreadpoolController()
        self._threads = 0
        self._built: dict[tuple[str, str, Tile | None, str], Callable[..., None] | str] = {}
        self._flush_buffer: np.ndarray | None = None

    def warm_up(self) -> None:
        """Keep a core busy until its clock has settled: a twentieth of a second."""
        values = np.ones(1 << 16)
        until = time.perf_counter() + WARM_UP_S
        while time.perf_counter() < until:
            values.sum()

    def copy_gbytes_per_s(self) -> float:
        """A copy in main memory on all threads: bytes read plus bytes written."""
        return copy_gbytes_per_s()

    def health(self) -> Health:
        """Nothing: operating systems do not agree on where to read a CPU's clock."""
        return Health()

    def usable(self) -> bool:
        """What a call does wrong ends that call, or the process."""
        return True

    def compile(self, points: Sequence[Point], on_built: Callable[[int], None]) -> None:
        """Build one instance after the other: Numba compiles under one lock."""
        wanted = {_instance(point): point for point in points}
        for count, point in enumerate(wanted.values(), 1):
            self._build(point)
            on_built(count)

    def bytes_needed(self, problem: Problem, *, cold: bool) -> int:
        """All sets of operands."""
        return problem.bytes * self._policy(problem, cold=cold).count

    def bytes_free(self) -> int:
        """Free and reclaimable main memory."""
        match = re.search(r"MemAvailable:\s+(\d+) kB", _text("/proc/meminfo"))
        return int(match[1]) * 1024 if match else 4 * 2**30

    def load(self, problem: Problem, inputs: Sequence[np.ndarray], *, cold: bool) -> CpuOperands:
        """Copies of the operands, aligned to cache lines."""
        policy = self._policy(problem, cold=cold)
        output = np.zeros(problem.output_shape, problem.precision.result)
        sets = tuple(
            tuple(_aligned_copy(array) for array in (*inputs, output)) for _ in range(policy.count)
        )
        return CpuOperands(sets=sets, rotation=Rotation(policy.count), policy=policy)

    def bind(self, point: Point, operands: CpuOperands, rows: int | None = None) -> CpuKernel:
        """The compiled function on the operands."""
        call = self._build(point)
        if isinstance(call, str):
            raise CompileError(call)
        problem = replace(point.problem, m=min(rows or point.problem.m, point.problem.m))
        sets = tuple(cut(arrays, problem) for arrays in operands.sets)
        if point.scope == Scope.END_TO_END:
            call = partial(_end_to_end, call)
        return CpuKernel(
            call=call,
            sets=sets,
            rotation=operands.rotation,
            flush=operands.policy.flush,
            threads=_call_variant(point).threads or cpu_threads(),
            max_launches=operands.policy.max_launches,
        )

    def run(self, kernel: CpuKernel) -> float:
        """Call once on the first set: its time in microseconds."""
        self._limit_threads(kernel.threads)
        kernel.rotation.used_out_of_turn()
        start = time.perf_counter_ns()
        _call(kernel, kernel.sets[0])
        return (time.perf_counter_ns() - start) / 1e3

    def sample(self, kernel: CpuKernel, launches: int, count: int) -> list[float]:
        """Time batches of calls with the host's monotonic clock."""
        self._limit_threads(kernel.threads)
        times = []
        flush = self._flush if kernel.flush else None
        for _ in range(count):
            sets = [kernel.sets[number] for number in kernel.rotation.take(launches, flush)]
            start = time.perf_counter_ns()
            for arrays in sets:
                _call(kernel, arrays)
            times.append((time.perf_counter_ns() - start) / 1e3 / launches)
        return times

    def _build(self, point: Point) -> Callable[..., None] | str:
        """The compiled function of a point, or why it does not compile."""
        key = _instance(point)
        if key not in self._built:
            try:
                self._built[key] = _call_variant(point).build(point.tile, point.problem.dtype)
            except Exception as error:  # whatever a kernel's author wrote
                self._built[key] = f"does not compile: {first_line(error)}"
        return self._built[key]

    def _policy(self, problem: Problem, *, cold: bool) -> SetPolicy:
        return set_policy(problem, self.device.l2_bytes, cold=cold, max_sets=MAX_SETS)

    def _limit_threads(self, threads: int) -> None:
        """Let BLAS and Numba use so many threads."""
        if threads == self._threads:
            return
        import numba

        self._blas.limit(limits=threads, user_api="blas")
        numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))
        self._threads = threads

    def _flush(self) -> None:
        """Replace what the last-level cache holds."""
        if self._flush_buffer is None:
            self._flush_buffer = np.zeros(2 * self.device.l2_bytes, np.uint8)
        self._flush_buffer += 1


def describe_cpu() -> Device:
    """This machine's CPU, from /proc and /sys where there are such."""
    caches = _caches()
    return Device(
        backend="cpu",
        name=_model_name(),
        multiprocessors=cpu_threads(),
        l2_bytes=max((size for _, size in caches), default=UNKNOWN_CACHE_BYTES),
        versions={"blas": _blas_name()},
        facts={
            "cores": cpu_threads(),
            "caches": dict(caches),
            "machine": platform.machine(),
            "system": f"{platform.system()} {platform.release()}",
            "blas": [
                {key: info.get(key) for key in ("internal_api", "version", "num_threads")}
                for info in threadpoolctl.threadpool_info()
                if info["user_api"] == "blas"
            ],
        },
    )


def measure_cpu() -> dict[str, float]:
    """Measured ceilings of the CPU: a copy (bytes read and written), and its BLAS on all cores."""
    a = np.ones((BLAS_EXTENT, BLAS_EXTENT), np.float32)
    c = np.empty_like(a)
    blas_s = _best_s(lambda: np.matmul(a, a, out=c))
    return {
        "measured_copy_gbytes_per_s": copy_gbytes_per_s(),
        "measured_float32_blas_gflops": 2 * BLAS_EXTENT**3 / blas_s / 1e9,
    }


def copy_gbytes_per_s() -> float:
    """Measured copy in main memory on all threads: bytes read plus bytes written."""
    threads = cpu_threads()
    source = np.ones(COPY_BYTES, np.uint8)
    parts = list(
        zip(
            np.array_split(np.empty_like(source), threads),
            np.array_split(source, threads),
            strict=True,
        )
    )
    with ThreadPoolExecutor(threads) as pool:  # NumPy copies outside Python's lock
        copy_s = _best_s(lambda: list(pool.map(lambda part: np.copyto(*part), parts)))
    return 2 * COPY_BYTES / copy_s / 1e9


def _best_s(run: Callable[[], object]) -> float:
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def cpu_threads() -> int:
    """CPUs this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _call(kernel: CpuKernel, arrays: tuple[np.ndarray, ...]) -> None:
    try:
        kernel.call(*arrays)
    except Exception as error:
        raise LaunchError(f"failed while running: {first_line(error)}") from error


def _end_to_end(call: Callable[..., None], *arrays: np.ndarray) -> None:
    """Allocate, copy in, call, copy out, free."""
    *inputs, output = arrays
    result = np.empty_like(output)
    call(*(array.copy() for array in inputs), result)
    output[...] = result


def _instance(point: Point) -> tuple[str, str, Tile | None, str]:
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


@cache
def _model_name() -> str:
    match = re.search(r"^model name\s*:\s*(.+)$", _text("/proc/cpuinfo"), re.MULTILINE)
    return match[1].strip() if match else platform.processor() or platform.machine()


def _caches() -> list[tuple[str, int]]:
    """Data and unified caches of the first CPU: name and bytes."""
    caches = []
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        kind = _text(folder / "type").strip()
        size = re.fullmatch(r"(\d+)([KM])", _text(folder / "size").strip())
        if size and kind in {"Data", "Unified"}:
            name = f"L{_text(folder / 'level').strip()}{'d' if kind == 'Data' else ''}"
            caches.append((name, int(size[1]) * {"K": 2**10, "M": 2**20}[size[2]]))
    return caches


def _blas_name() -> str:
    for info in threadpoolctl.threadpool_info():
        if info["user_api"] == "blas":
            return f"{info['internal_api']} {info['version']}"
    return ""


def _text(path: str | Path) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
