"""An NVIDIA GPU as a backend, through CuPy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, repeat
from typing import Any

import cupy
import numpy as np
from cupy.cuda import runtime

from gpubench.backends.cuda.cupti import CuptiTimer
from gpubench.backends.cuda.devices import cuda_device
from gpubench.backends.cuda.faults import faults
from gpubench.backends.cuda.instances import Instances, Routine
from gpubench.backends.cuda.nvml import Nvml
from gpubench.backends.cuda.stream import CudaStream
from gpubench.backends.cuda.timer import BlockedBatchTimer
from gpubench.backends.sets import (
    CACHES_TO_OUTGROW,
    MAX_LAUNCHES,
    Rotation,
    SetPolicy,
    cut,
    set_policy,
)
from gpubench.errors import DoesNotFitError
from gpubench.model import Health, Launch, Point, Problem, Resources, Scope, Timer


@dataclass(frozen=True, kw_only=True)
class CudaOperands:
    """Operands in device memory."""

    sets: tuple[tuple[Any, ...], ...]
    """Each set: the inputs, then the output."""

    hosts: tuple[np.ndarray, ...]
    """The inputs and a place for the output, in pageable host memory."""

    rotation: Rotation
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

    first: Callable[[], None]
    """A launch on the first set of operands, which enqueues and does not wait."""

    turns: Iterator[Callable[[], None]]
    """Launches on set after set: each goes on where the last one on these operands stopped."""

    timer: Timer
    scope: Scope
    flush: bool
    max_launches: int
    resources: Resources | None = None
    launch: Launch | None = None


class CudaBackend:
    """Runs `CudaVariant`s, and `CallVariant`s that take CuPy arrays."""

    xp: Any = cupy

    def __init__(self, index: int) -> None:
        self.device = cuda_device(index)
        cupy.cuda.Device(index).use()
        major, minor = self.device.compute_capability or (0, 0)
        architecture = f"sm_{major}{minor}"
        self._instances = Instances(self.device, architecture)
        self._flush_buffer: Any = None
        self.stream = CudaStream(self.device, architecture)
        self.timer = BlockedBatchTimer(self.stream)
        self._cupti: CuptiTimer | None = None
        self._nvml: Nvml | None = None
        self.notices: tuple[str, ...] = ()
        try:
            self._nvml = Nvml(self.device.facts["uuid"])
        except OSError as error:
            self.notices = (f"clocks, temperature and power stay empty: {error}",)
        else:
            if others := self._nvml.others():
                self.notices = (f"others compute on this GPU, and times may suffer: {others}",)

    def warm_up(self) -> None:
        """Multiply-add until the clock has settled, then calibrate the timer at that clock."""
        with faults():
            self.stream.warm_up()
            self.timer.calibrate(self.stream.nothing)

    def ceilings(self) -> dict[str, float]:
        """What the device does at the most, measured: rates that kernels may be held against."""
        with faults():
            self.stream.warm_up()
            return {
                "measured_copy_gbytes_per_s": self.stream.copy_gbytes_per_s(),
                "measured_float32_fma_gflops": self.stream.fma_gflops(),
            }

    def copy_gbytes_per_s(self) -> float:
        """A copy in device memory: bytes read plus bytes written."""
        with faults():
            return self.stream.copy_gbytes_per_s()

    def health(self) -> Health:
        """Sensors through NVML, and the clock that the stream saw."""
        clock_mhz = self.timer.take_clock_mhz()
        return self._nvml.health(clock_mhz) if self._nvml else Health(sm_mhz=clock_mhz)

    def usable(self) -> bool:
        """Whether the context survived: errors of a kernel stay with it until the process ends."""
        try:
            self.stream.nothing()
            self.stream.synchronize()
        except RuntimeError:
            return False
        return True

    def compile(self, points: Sequence[Point], on_built: Callable[[int], None]) -> None:
        """Compile in as many threads as there are CPUs: NVRTC works outside Python's lock."""
        self._instances.compile(points, on_built)

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
        with faults():
            pools = []
            for array in inputs:
                pool = cupy.empty((policy.count, *array.shape), array.dtype)
                pool[:] = cupy.asarray(array)
                pools.append(pool)
            pools.append(cupy.zeros((policy.count, *problem.output_shape), problem.dtype))
            if policy.flush and self._flush_buffer is None:
                self._flush_buffer = cupy.empty(self._flush_bytes, np.uint8)
        hosts = (*inputs, np.empty(problem.output_shape, problem.dtype))
        return CudaOperands(
            sets=tuple(zip(*pools, strict=True)),
            hosts=hosts,
            rotation=Rotation(policy.count),
            policy=policy,
        )

    def bind(self, point: Point, operands: CudaOperands, rows: int | None = None) -> CudaKernel:
        """The compiled instance, or the library routine, on the operands."""
        problem = replace(point.problem, m=min(rows or point.problem.m, point.problem.m))
        with faults():
            routine = self._instances.routine(point, problem)
            needed = routine.workspace_bytes
            if needed and needed > (free := self.bytes_free()):
                raise DoesNotFitError(f"needs {needed:,} bytes of workspace, {free:,} are free")
            workspace = _workspace(routine)
            calls = [routine.bind((*cut(arrays, problem), *workspace)) for arrays in operands.sets]
        turns: Iterator[Callable[[], None]] = map(calls.__getitem__, operands.rotation.turns)
        if point.scope == Scope.END_TO_END:
            turns = repeat(_end_to_end(routine, cut(operands.hosts, problem)))
        return CudaKernel(
            first=calls[0],
            turns=turns,
            timer=point.timer,
            scope=point.scope,
            flush=operands.policy.flush,
            max_launches=operands.policy.max_launches,
            resources=routine.resources,
            launch=routine.launch and routine.launch.main,
        )

    def run(self, kernel: CudaKernel) -> None:
        """Launch on the first set and wait."""
        with faults():
            kernel.first()
            cupy.cuda.get_current_stream().synchronize()

    def sample(self, kernel: CudaKernel, launches: int, count: int) -> list[float]:
        """Time by the gated batch, or by CUPTI; end to end by events alone."""
        before = self._flush if kernel.flush else None
        with faults():
            if kernel.scope == Scope.END_TO_END:
                return self._sample_end_to_end(kernel, launches, count)
            if kernel.timer == Timer.CUPTI:
                if self._cupti is None:
                    self._cupti = CuptiTimer(cupy.cuda.get_current_stream().synchronize)
                return self._cupti.sample(kernel.turns, launches, count, before)
            return self.timer.sample(kernel.turns, launches, count, before)

    def _sample_end_to_end(self, kernel: CudaKernel, launches: int, count: int) -> list[float]:
        """No gate: copies from pageable memory wait for the host as they would in a program."""
        times = []
        for _ in range(count):
            start = self.stream.begin()
            for launch in islice(kernel.turns, launches):
                launch()
            stop = self.stream.end()
            self.stream.synchronize()
            times.append(self.stream.elapsed_us(start, stop) / launches)
        return times

    @property
    def _flush_bytes(self) -> int:
        return CACHES_TO_OUTGROW * self.device.l2_bytes

    def _policy(self, problem: Problem, *, cold: bool) -> SetPolicy:
        # As many sets as a sample may have launches: each meets a set that the flush made cold.
        return set_policy(problem, self.device.l2_bytes, cold=cold, max_sets=MAX_LAUNCHES)

    def _flush(self) -> None:
        runtime.memsetAsync(
            self._flush_buffer.data.ptr, 0, self._flush_bytes, cupy.cuda.get_current_stream().ptr
        )


def _workspace(routine: Routine) -> tuple[Any, ...]:
    """The array that a routine wants as its last, if it wants one."""
    size = routine.workspace_bytes
    return (cupy.empty(size, np.uint8),) if size else ()


def _end_to_end(routine: Routine, hosts: Sequence[np.ndarray]) -> Callable[[], None]:
    """Allocate, copy in, launch, copy out, free: `cudaMalloc` and `cudaFree`, not CuPy's pool."""
    *inputs, output = hosts

    def run() -> None:
        with cupy.cuda.using_allocator(None):
            arrays = [cupy.empty(array.shape, array.dtype) for array in hosts]
            for array, host in zip(arrays, inputs, strict=False):
                array.set(host)
            routine.bind((*arrays, *_workspace(routine)))()
            arrays[-1].get(out=output)

    return run
