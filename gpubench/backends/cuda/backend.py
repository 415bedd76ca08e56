"""An NVIDIA GPU as a backend, through CuPy."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import cupy
import numpy as np
from cupy.cuda import runtime
from cupy_backends.cuda.api import driver

from gpubench.backends.cpu import cpu_threads
from gpubench.backends.cuda.compile import Compiled, compile_instance, instance
from gpubench.backends.cuda.devices import cuda_device
from gpubench.backends.cuda.timer import GatedTimer
from gpubench.backends.sets import CACHES_TO_OUTGROW, MOST_LAUNCHES, SetPolicy, set_policy
from gpubench.errors import CompileError, DoesNotFitError, LaunchError
from gpubench.model import CallVariant, CudaVariant, Launch, Point, Problem, Resources, Tile

DEFAULT_SHARED_BYTES = 48 * 1024
"""Dynamic shared memory a kernel may use without asking (CUDA C++ Programming Guide)."""


@dataclass(frozen=True, kw_only=True)
class CudaOperands:
    """Operands in device memory."""

    sets: tuple[tuple[Any, ...], ...]
    """Each set: the inputs, then the output."""

    policy: SetPolicy

    @property
    def inputs(self) -> tuple[Any, ...]:
        """The first set's inputs."""
        return self.sets[0][:-1]

    @property
    def output(self) -> Any:
        """The first set's output."""
        return self.sets[0][-1]


@dataclass(frozen=True, kw_only=True)
class CudaKernel:
    """A kernel or library routine bound to operands."""

    launches: tuple[Callable[[], None], ...]
    """A launch on each set of operands, which enqueues and does not wait."""

    turns: Iterator[Callable[[], None]]
    """The launches over and over: each sample goes on where the last one stopped."""

    flush: bool
    most_launches: int
    resources: Resources | None = None
    launch: Launch | None = None


class CudaStream:
    """What `GatedTimer` needs of a stream."""

    def __init__(self, architecture: str, clock_mhz: float) -> None:
        self._stream = cupy.cuda.get_current_stream()
        gate = compile_instance(Path(__file__).with_name("gate.cu"), "gate", architecture)
        self._clock_mhz = clock_mhz
        self._cycles = ctypes.c_longlong()
        self._open_gate = bind_launch(
            load_function(gate), Launch(grid=(1,), block=(1,)), (self._cycles,)
        )
        self._events: list[Any] = []
        self._used = 0

    def gate(self, microseconds: float) -> None:
        """Keep the stream busy for at least so long."""
        self._cycles.value = int(microseconds * self._clock_mhz)
        self._open_gate()  # the driver copies the arguments when it enqueues

    def record(self) -> Any:
        """Enqueue an event. Events are used again after `synchronize`."""
        if self._used == len(self._events):
            self._events.append(cupy.cuda.Event())
        event = self._events[self._used]
        self._used += 1
        event.record(self._stream)
        return event

    def synchronize(self) -> None:
        """Wait for all that was enqueued."""
        self._stream.synchronize()
        self._used = 0

    def elapsed_us(self, start: Any, stop: Any) -> float:
        """Between two events."""
        return float(cupy.cuda.get_elapsed_time(start, stop)) * 1e3


class CudaBackend:
    """Runs `CudaVariant`s, and `CallVariant`s that take CuPy arrays."""

    xp: Any = cupy

    def __init__(self, index: int) -> None:
        self.device = cuda_device(index)
        cupy.cuda.Device(index).use()
        major, minor = self.device.compute_capability or (0, 0)
        self._architecture = f"sm_{major}{minor}"
        self._compiled: dict[tuple[Path, str], Compiled | str] = {}
        self._functions: dict[tuple[Path, str], Any] = {}
        self._flush_buffer: Any = None
        stream = CudaStream(self._architecture, self.device.sm_clock_mhz or 1000.0)
        self.timer = GatedTimer(stream)

    def compile(self, points: Sequence[Point], on_built: Callable[[int], None]) -> None:
        """Compile in as many threads as there are CPUs: NVRTC works outside Python's lock."""
        wanted = {
            _instance(point): None for point in points if isinstance(point.variant, CudaVariant)
        }
        with ThreadPoolExecutor(cpu_threads()) as pool:
            # The slowest instances, those of the largest tiles, tend to stand last: start there.
            builds = [pool.submit(self._build, key) for key in reversed(wanted)]
            for count, _ in enumerate(as_completed(builds), 1):
                on_built(count)

    def bytes_needed(self, problem: Problem, *, cold: bool) -> int:
        """All sets of operands, and the buffer that flushes the cache."""
        policy = self._policy(problem, cold=cold)
        return problem.bytes * policy.count + policy.flush * self._flush_bytes

    def bytes_free(self) -> int:
        """Free on the device, or held by CuPy's pool for us."""
        return int(runtime.memGetInfo()[0]) + int(cupy.get_default_memory_pool().free_bytes())

    def load(self, problem: Problem, inputs: Sequence[np.ndarray], *, cold: bool) -> CudaOperands:
        """One pool of memory an operand, holding all sets."""
        policy = self._policy(problem, cold=cold)
        with _faults():
            pools = []
            for array in inputs:
                pool = cupy.empty((policy.count, *array.shape), array.dtype)
                pool[:] = cupy.asarray(array)
                pools.append(pool)
            pools.append(cupy.zeros((policy.count, *problem.output_shape), problem.dtype))
            if policy.flush and self._flush_buffer is None:
                self._flush_buffer = cupy.empty(self._flush_bytes, np.uint8)
        return CudaOperands(sets=tuple(zip(*pools, strict=True)), policy=policy)

    def bind(self, point: Point, operands: CudaOperands, rows: int | None = None) -> CudaKernel:
        """The compiled instance, or the library routine, on the operands."""
        m = min(rows or point.problem.m, point.problem.m)
        policy = operands.policy
        variant = point.variant
        if isinstance(variant, CallVariant):
            # A and C lose rows; B stays whole.
            call = variant.build(point.tile, point.problem.dtype)
            calls: tuple[Callable[[], None], ...] = tuple(
                partial(call, a[:m], *rest, c[:m]) for a, *rest, c in operands.sets
            )
            return CudaKernel(
                launches=calls,
                turns=cycle(calls),
                flush=policy.flush,
                most_launches=policy.most_launches,
            )
        variant, tile = _cuda_parts(point)
        launch = variant.launch(tile, replace(point.problem, m=m))
        compiled, function = self._function(_instance(point))
        if launch.shared_bytes > DEFAULT_SHARED_BYTES:
            driver.funcSetAttribute(
                function.ptr,
                driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                launch.shared_bytes,
            )
        extents = tuple(ctypes.c_int(n) for n in (m, point.problem.n, point.problem.k))
        pointers = (tuple(ctypes.c_void_p(x.data.ptr) for x in arrays) for arrays in operands.sets)
        calls = tuple(bind_launch(function, launch, (*some, *extents)) for some in pointers)
        return CudaKernel(
            launches=calls,
            turns=cycle(calls),
            flush=policy.flush,
            most_launches=policy.most_launches,
            resources=compiled.resources,
            launch=launch,
        )

    def run(self, kernel: CudaKernel) -> None:
        """Launch on the first set and wait."""
        with _faults():
            kernel.launches[0]()
            cupy.cuda.get_current_stream().synchronize()

    def sample(self, kernel: CudaKernel, launches: int, count: int) -> list[float]:
        """Time by the gated batch."""
        with _faults():
            before = self._flush if kernel.flush else None
            return self.timer.sample(kernel.turns, launches, count, before)

    @property
    def _flush_bytes(self) -> int:
        return CACHES_TO_OUTGROW * self.device.l2_bytes

    def _policy(self, problem: Problem, *, cold: bool) -> SetPolicy:
        # As many sets as a sample may have launches: each meets a set that the flush made cold.
        return set_policy(problem, self.device.l2_bytes, cold=cold, most_sets=MOST_LAUNCHES)

    def _flush(self) -> None:
        runtime.memsetAsync(
            self._flush_buffer.data.ptr, 0, self._flush_bytes, cupy.cuda.get_current_stream().ptr
        )

    def _build(self, key: tuple[Path, str]) -> Compiled | str:
        if key not in self._compiled:
            try:
                self._compiled[key] = compile_instance(*key, self._architecture)
            except CompileError as error:
                self._compiled[key] = str(error)
        return self._compiled[key]

    def _function(self, key: tuple[Path, str]) -> tuple[Compiled, Any]:
        """A compiled instance and its function on the device."""
        compiled = self._build(key)
        if isinstance(compiled, str):
            raise CompileError(compiled)
        if key not in self._functions:
            with _faults():
                self._functions[key] = load_function(compiled)
        return compiled, self._functions[key]


def load_function(compiled: Compiled) -> Any:
    """A cubin's kernel, loaded on the current device."""
    module = cupy.cuda.Module()
    module.load(compiled.cubin)
    return module.get_function(compiled.symbol)


def bind_launch(function: Any, launch: Launch, values: Sequence[Any]) -> Callable[[], None]:
    """A launch in the current stream with everything packed ahead, so that it enqueues quickly.

    `values` are the kernel's arguments as ctypes objects.
    """
    pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
    fixed = (
        *(function.ptr, *(*launch.grid, 1, 1)[:3], *(*launch.block, 1, 1)[:3]),
        *(launch.shared_bytes, cupy.cuda.get_current_stream().ptr, ctypes.addressof(pointers), 0),
    )
    enqueue = driver.launchKernel

    def run(_alive: object = (values, pointers)) -> None:
        enqueue(*fixed)

    return run


def _instance(point: Point) -> tuple[Path, str]:
    variant, tile = _cuda_parts(point)
    return variant.source, instance(variant, tile, point.problem.dtype)


def _cuda_parts(point: Point) -> tuple[CudaVariant, Tile]:
    """The point's variant and tile, which a CUDA variant always has."""
    if not isinstance(point.variant, CudaVariant) or point.tile is None:
        raise TypeError(f"{point.label} is not a CUDA source with a tile")
    return point.variant, point.tile


@contextmanager
def _faults() -> Iterator[None]:
    """CuPy's errors as ours."""
    try:
        yield
    except MemoryError as error:
        raise DoesNotFitError(f"out of device memory: {error}") from error
    except RuntimeError as error:  # CUDA's runtime, driver and cuBLAS errors derive from it
        raise LaunchError(str(error).strip().partition("\n")[0]) from error
