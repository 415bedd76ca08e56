"""An NVIDIA GPU as a backend, through CuPy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

import cupy
import numpy as np
from cupy.cuda import runtime

from gpubench.backends.calls import allocating, torch
from gpubench.backends.cuda.cupti import CuptiTimer
from gpubench.backends.cuda.devices import cuda_device
from gpubench.backends.cuda.launching import Instances, Routine, call_routine
from gpubench.backends.cuda.nvml import Nvml
from gpubench.backends.cuda.stream import CudaStream
from gpubench.backends.cuda.sustained import sustain
from gpubench.backends.cuda.timer import BlockedBatchTimer
from gpubench.backends.rotation import (
    CACHES_TO_OUTGROW,
    FACTORS,
    MAX_LAUNCHES,
    OperandSets,
    Rotation,
    SetPolicy,
    first_rows,
    operand_factors,
    set_policy,
    stacked,
)
from gpubench.errors import CompileError, DoesNotFitError, LaunchError, first_line
from gpubench.model import (
    CORE_DTYPES,
    Cache,
    CallVariant,
    Health,
    Launch,
    Point,
    Problem,
    Resources,
    Scope,
    Series,
    Timer,
)


@dataclass(frozen=True, kw_only=True)
class CudaOperands(OperandSets):
    """Operands in device memory."""

    outputs: Any
    """The outputs of all sets, one after the other."""

    host_output: np.ndarray
    """Room for the output in pageable host memory, where the given inputs are."""


@dataclass(frozen=True, kw_only=True)
class CudaKernel:
    """A kernel or library routine bound to operands."""

    rotation: Iterator[Callable[[], None]]
    """Launches on set after set, from where the last launch on these operands stopped; they enqueue
    and do not wait."""

    routine: Routine
    host_output: np.ndarray
    """Where a launch that is timed end to end leaves its result, and not in `output`."""

    output: Any
    """The first set's output."""

    timer: Timer
    scope: Scope
    flush: bool
    max_launches: int
    thread_counts: tuple[int, ...] = ()

    @property
    def launch(self) -> Launch | None:
        """Of a compiled kernel."""
        return self.routine.launch and self.routine.launch.main

    @property
    def resources(self) -> Resources | None:
        """As the compiler or the function says."""
        return self.routine.resources

    @property
    def algorithm(self) -> str:
        """As the library or the function says."""
        return self.routine.algorithm


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
                self.notices = (
                    f"other processes use this GPU, which makes times longer: {others}",
                )

    def warm_up(self) -> None:
        """Multiply-add until the clock has settled, then calibrate the timer at that clock."""
        with faults():
            self.stream.warm_up()
            self.timer.calibrate(self.stream.launch_empty)

    def ceilings(
        self,
        dtypes: Sequence[str] = CORE_DTYPES,
        *,
        kept: bool = False,  # noqa: ARG002 # it takes no time here
    ) -> dict[str, float]:
        """The device's highest rates, measured; of arithmetic all, unless no dtype is asked for."""
        with faults():
            self.stream.warm_up()
            rates: dict[str, float | None] = {
                "measured_copy_gbytes_per_s": self.stream.copy_gbytes_per_s()
            }
            if dtypes:
                rates["measured_float32_fma_gflops"] = self.stream.fma_gflops()
                rates |= {
                    f"measured_{dtype}_tensor_gflops": rate
                    for dtype, rate in self.stream.tensor_gflops().items()
                }
        return {name: rate for name, rate in rates.items() if rate}

    def parts(self) -> dict[str, float]:
        """Copies in device memory and over PCIe, and a chain of loads from memory."""
        with faults():
            return {
                "copy": self.stream.copy_us(),
                "latency": self.stream.latency_us(),
                "to device": self.stream.host_copy_us(runtime.memcpyHostToDevice),
                "from device": self.stream.host_copy_us(runtime.memcpyDeviceToHost),
            }

    def configuration(self) -> dict[str, Any]:
        """From NVML, and the driver."""
        found = self._nvml.configuration() if self._nvml else {}
        return {"driver": self.device.versions.get("driver"), **found}

    def health(self) -> Health:
        """Sensors through NVML, and the clock measured in the stream."""
        clock_mhz = self.timer.take_clock_mhz()
        health = self._nvml.health(clock_mhz) if self._nvml else Health(sm_mhz=clock_mhz)
        return replace(health, overhead_us=self.timer.overhead_us)

    def usable(self) -> bool:
        """Whether the context survived: a kernel's fault stays with it until the process ends."""
        try:
            self.stream.launch_empty()
            self.stream.synchronize()
        except RuntimeError:
            return False
        return True

    def compile(self, points: Sequence[Point], on_built: Callable[[int], None]) -> None:
        """Compile what the points need, in several threads."""
        self._instances.compile(points, on_built)

    def bytes_needed(self, problem: Problem, *, cold: bool) -> int:
        """All sets of operands, and the buffer that flushes the cache."""
        policy = self._policy(problem, cold=cold)
        return problem.bytes * policy.count + policy.flush * self._flush_bytes

    def bytes_free(self) -> int:
        """Free on the device or in CuPy's pool."""
        return int(runtime.memGetInfo()[0]) + int(cupy.get_default_memory_pool().free_bytes())

    def load(self, problem: Problem, inputs: Sequence[np.ndarray], *, cold: bool) -> CudaOperands:
        """One allocation per operand, which holds all sets."""
        policy = self._policy(problem, cold=cold)
        with faults():
            *stacks, outputs = stacked(_zeros, policy.count, problem)
            for position, (array, stack) in enumerate(zip(inputs, stacks, strict=True)):
                copies: dict[int, Any] = {}
                for index in range(min(policy.count, len(FACTORS))):
                    factor = operand_factors(problem, index)[position]
                    if factor not in copies:
                        copies[factor] = cupy.asarray(_storable(array * factor))
                    stack[index :: len(FACTORS)] = copies[factor]
            if policy.flush and self._flush_buffer is None:
                self._flush_buffer = cupy.empty(self._flush_bytes, np.uint8)
        return CudaOperands(
            problem=problem,
            given=tuple(inputs),
            sets=tuple(zip(*stacks, outputs, strict=True)),
            outputs=outputs,
            host_output=np.empty(problem.output_shape, problem.precision.result),
            policy=policy,
            rotation=Rotation(policy.count),
        )

    def bind(self, point: Point, operands: CudaOperands, rows: int | None = None) -> CudaKernel:
        """The compiled instance, or the library routine, on the operands."""
        problem = replace(point.problem, m=min(rows or point.problem.m, point.problem.m))
        with faults():
            routine = self._routine(point, problem, operands)
            needed = routine.workspace_bytes
            if needed and needed > (free := self.bytes_free()):
                raise DoesNotFitError(f"needs {needed:,} bytes of workspace, {free:,} are free")
            workspace = _workspace(routine)
            launches = [
                routine.bind((*first_rows(arrays, problem), *workspace)) for arrays in operands.sets
            ]
        rotation: Iterator[Callable[[], None]] = map(launches.__getitem__, operands.rotation)
        hosts = first_rows((*operands.given, operands.host_output), problem)
        if point.scope == Scope.END_TO_END:
            empty = cupy.zeros if point.variant.reads_output else cupy.empty
            rotation = _on_first_set(_end_to_end(routine, hosts, empty), operands.rotation)
        return CudaKernel(
            rotation=rotation,
            host_output=hosts[-1],
            output=first_rows(operands.sets[0], problem)[-1],
            timer=point.timer,
            scope=point.scope,
            flush=operands.policy.flush,
            max_launches=operands.policy.max_launches,
            routine=routine,
        )

    def _routine(self, point: Point, problem: Problem, operands: CudaOperands) -> Routine:
        """The point's routine; of a library with several algorithms the fastest on the operands."""
        variant = point.variant
        tune = variant.tune if isinstance(variant, CallVariant) else None
        if tune is None or problem != point.problem:  # fewer rows only foretell a slow launch
            return self._instances.routine(point, problem)
        before = self._flush if operands.policy.flush else None

        def sample(call: Callable[..., None], launches: int) -> float:
            on_sets = (partial(call, *operands.sets[index]) for index in operands.rotation)
            return self.timer.sample(on_sets, launches, 1, before)[0]

        cold = point.cache == Cache.COLD
        call, chosen = tune(problem, cold, sample, operands.policy.max_launches)
        return call_routine(call, chosen=chosen)

    def fingerprints(self, operands: CudaOperands) -> dict[int, int]:
        """Of the outputs that launches wrote into, by their sets."""
        with faults():
            found = self.stream.fingerprints(operands.outputs)
        return {index: found[index] for index in operands.rotation.used}

    def run(self, kernel: CudaKernel, launches: int = 1) -> None:
        """Launch on the next sets and wait."""
        with faults():
            for launch in islice(kernel.rotation, launches):
                launch()
            cupy.cuda.get_current_stream().synchronize()
            if kernel.scope == Scope.END_TO_END:
                kernel.output.set(kernel.host_output)

    def watch(self, kernel: CudaKernel) -> str:
        """Whether a call waits for the device, and the memory it takes from CuPy or torch."""
        with faults(), _Allocations() as seen:
            waits = self.timer.waits(next(kernel.rotation))
        if waits:
            raise LaunchError(
                "the call waits for the GPU (it synchronizes, or copies to the host), so launches "
                "cannot be enqueued behind one another: leave that out, or use --scope end-to-end"
            )
        return allocating(seen.bytes)

    def sample(self, kernel: CudaKernel, launches: int, count: int) -> list[float]:
        """Time by the blocked batch, or by CUPTI; end to end by events alone."""
        before = self._flush if kernel.flush else None
        with faults():
            if kernel.scope == Scope.END_TO_END:
                return self._sample_end_to_end(kernel, launches, count)
            if kernel.timer == Timer.CUPTI:
                if self._cupti is None:
                    self._cupti = CuptiTimer(cupy.cuda.get_current_stream().synchronize)
                return self._cupti.sample(kernel.rotation, launches, count, before)
            return self.timer.sample(kernel.rotation, launches, count, before)

    def sustain(self, kernel: CudaKernel, heat_s: float, timed_s: float) -> Series:
        """The clock meanwhile is the next `health`'s."""
        with faults():
            launch_us = min(self.timer.sample(kernel.rotation, 1, 3))
            energy_j = self._nvml.energy_j if self._nvml else lambda: None
            series, mhz = sustain(
                self.stream, kernel.rotation, launch_us, heat_s, timed_s, energy_j
            )
            self.timer.set_clock_mhz(mhz)
        return series

    def _sample_end_to_end(self, kernel: CudaKernel, launches: int, count: int) -> list[float]:
        """Not blocked: copies from pageable memory wait for the host as they do in a program."""
        times = []
        for _ in range(count):
            start = self.stream.record_start()
            for launch in islice(kernel.rotation, launches):
                launch()
            stop = self.stream.record_stop()
            self.stream.synchronize()
            times.append(self.stream.elapsed_us(start, stop) / launches)
        kernel.output.set(kernel.host_output)
        return times

    @property
    def _flush_bytes(self) -> int:
        return CACHES_TO_OUTGROW * self.device.l2_bytes

    def _policy(self, problem: Problem, *, cold: bool) -> SetPolicy:
        # At most as many sets as a sample has launches: each uses a set that the flush made cold.
        return set_policy(problem, self.device.l2_bytes, cold=cold, max_sets=MAX_LAUNCHES)

    def _flush(self) -> None:
        runtime.memsetAsync(
            self._flush_buffer.data.ptr, 0, self._flush_bytes, cupy.cuda.get_current_stream().ptr
        )


class _Allocations(cupy.cuda.MemoryHook):  # type: ignore[misc] # CuPy has no types
    """Counts the bytes that CuPy's and torch's pools give out inside it."""

    name = "gpubench"

    def __init__(self) -> None:
        self.bytes = -self._of_torch()

    def malloc_preprocess(self, **facts: int) -> None:
        """CuPy's pool is asked."""
        self.bytes += facts["size"]

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self.bytes += self._of_torch()

    @staticmethod
    def _of_torch() -> int:
        stats = torch().cuda.memory_stats() if torch() else {}
        return int(stats.get("allocated_bytes.all.allocated", 0))


@contextmanager
def faults() -> Iterator[None]:
    """Raise what CuPy raises as DoesNotFitError (too little memory) or LaunchError (the rest)."""
    try:
        yield
    except (CompileError, DoesNotFitError, LaunchError):
        raise
    except MemoryError as error:
        raise DoesNotFitError(f"out of device memory: {error}") from error
    except Exception as error:  # CuPy's CUDA and cuBLAS errors, and whatever a function raises
        raise LaunchError(first_line(error)) from error


def _storable(array: Any) -> Any:
    """An array as CuPy takes it: of float8, which CuPy has not, the bytes."""
    return array.view(np.uint8) if array.dtype.name.startswith("float8") else array


def _zeros(shape: tuple[int, ...], kind: str) -> Any:
    return cupy.zeros(shape, _storable(np.empty(0, kind)).dtype)


def _workspace(routine: Routine) -> tuple[Any, ...]:
    """The array that a routine takes as its last, if it takes one."""
    size = routine.workspace_bytes
    return (cupy.empty(size, np.uint8),) if size else ()


def _on_first_set(launch: Callable[[], None], rotation: Rotation) -> Iterator[Callable[[], None]]:
    """A launch again and again, each noted as one on the first set."""
    while True:
        rotation.used.add(0)
        yield launch


def _end_to_end(
    routine: Routine, hosts: Sequence[np.ndarray], empty: Callable[..., Any]
) -> Callable[[], None]:
    """Allocate, copy in, launch, copy out, free: `cudaMalloc` and `cudaFree`, not CuPy's pool."""
    *inputs, output = hosts

    def run() -> None:
        with cupy.cuda.using_allocator(None):
            arrays = [empty(array.shape, array.dtype) for array in hosts]
            for array, host in zip(arrays, inputs, strict=False):
                array.set(host)
            routine.bind((*arrays, *_workspace(routine)))()
            arrays[-1].get(out=output)

    return run
