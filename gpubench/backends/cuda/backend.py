"""An NVIDIA GPU as a backend, which loads operands by CuPy and binds kernels to the operands."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from types import ModuleType
from typing import Any

import cupy
import numpy as np
from cupy.cuda import runtime

from gpubench.backends import functions
from gpubench.backends.cuda.devices import cuda_device
from gpubench.backends.cuda.driver import reset_caches
from gpubench.backends.cuda.gauge import CudaGauge
from gpubench.backends.cuda.held_launches import HeldLaunches
from gpubench.backends.cuda.ipc import CudaIpc
from gpubench.backends.cuda.kernel import CudaKernel, CudaTimers, faults
from gpubench.backends.cuda.launching import CudaRoutine, Instances, call_routine
from gpubench.backends.cuda.nvml import Nvml
from gpubench.backends.cuda.stream import CudaStream
from gpubench.backends.rotation import (
    FACTORS,
    MAX_LAUNCHES,
    FixedArrays,
    OperandSets,
    Rotation,
    SetPolicy,
    bytes_of_sets,
    first_rows,
    operand_factors,
    set_policy,
    stacked,
)
from gpubench.errors import DoesNotFitError
from gpubench.model import Cache, CallVariant, Launches, Point, Problem, Scope


@dataclass(frozen=True, kw_only=True)
class CudaOperands(OperandSets):
    """Operands in device memory."""

    outputs: Any  # the outputs of all sets, one after the other
    host_output: np.ndarray
    """An array for the output. It is in pageable host memory, as the arrays of `host_inputs`
    are."""

    stream: CudaStream

    def fingerprints(self) -> dict[int, int]:
        """Return a number for the output of each set that launches wrote into.

        A kernel computes this number on the device. Raises LaunchError.
        """
        with faults():
            fingerprints = self.stream.fingerprints(self.outputs)
        return {index: fingerprints[index] for index in self.rotation.used}

    def fill_outputs(self, value: float) -> None:
        """Fill the outputs that launches wrote into. If these are all outputs, use one call."""
        if len(self.rotation.used) == len(self.sets):
            self.outputs.fill(value)
        else:
            super().fill_outputs(value)


class CudaBackend:
    """Runs `CudaVariant`s, and `CallVariant`s that take CuPy arrays."""

    xp: ModuleType = cupy

    def __init__(self, index: int) -> None:
        self.device = cuda_device(index)
        cupy.cuda.Device(index).use()
        cupy.cuda.Stream().use()  # the default stream cannot be captured in a graph
        self._instances = Instances(self.device)
        self._fixed = FixedArrays()
        self.ipc = CudaIpc()
        stream = CudaStream(self.device)
        nvml, self.notices = self._open_nvml()
        energy_j = nvml.energy_j if nvml else lambda: None
        self.timers = CudaTimers(stream, self.device.l2_bytes, energy_j)
        self.gauge = CudaGauge(self.device, self.timers, nvml)

    def _open_nvml(self) -> tuple[Nvml | None, tuple[str, ...]]:
        """Return the GPU's sensors, or None if they cannot be read, and notices for the user."""
        try:
            nvml = Nvml(self.device.facts["uuid"])
        except OSError as error:
            return None, (f"clocks, temperature and power cannot be read: {error}",)
        if others := nvml.others():
            return nvml, (f"other processes use this GPU, which makes times longer: {others}",)
        return nvml, ()

    def warm_up(self) -> None:
        """Run multiply-adds until the clock has settled, then calibrate the timer at that clock."""
        with faults():
            self.gauge.warm_up()
            self.timers.events.calibrate(self.timers.stream.launch_empty)

    def reset_caches(self) -> None:
        """Unpin all lines of the L2 cache, and reset the preference for L1 or shared memory."""
        reset_caches()

    def usable(self) -> bool:
        """Return whether calls in the CUDA context work. After a fault, all calls fail."""
        try:
            self.timers.stream.launch_empty()
            self.timers.stream.synchronize()
        except RuntimeError:
            return False
        return True

    def compile(self, points: Sequence[Point], on_built: Callable[[int], None]) -> None:
        """Compile the kernels of the points, in several threads."""
        self._instances.compile(points, on_built)

    def bytes_needed(self, problem: Problem, *, cold: bool, one_set: bool = False) -> int:
        """Return the bytes that all sets of operands and the buffer for cache flushes take."""
        policy = self._policy(problem, cold=cold, one_set=one_set)
        flushed = policy.flush * self.timers.flush_bytes
        return sum(bytes_of_sets(problem, policy.count + one_set)) + flushed  # `FixedArrays`, too

    def bytes_free(self) -> int:
        """Return the number of bytes that are free on the device or in CuPy's pool."""
        return int(runtime.memGetInfo()[0]) + int(cupy.get_default_memory_pool().free_bytes())

    def load(
        self, problem: Problem, inputs: Sequence[np.ndarray], *, cold: bool, one_set: bool = False
    ) -> CudaOperands:
        """Copy the operands. Each operand has one allocation, which holds all sets."""
        policy = self._policy(problem, cold=cold, one_set=one_set)
        with faults():
            *stacks, outputs = stacked(
                lambda shape, kind: cupy.zeros(shape, _storable(np.empty(0, kind)).dtype),
                policy.count,
                problem,
            )
            for position, (array, stack) in enumerate(zip(inputs, stacks, strict=True)):
                copies: dict[int, Any] = {}
                for index in range(min(policy.count, len(FACTORS))):
                    factor = operand_factors(problem, index)[position]
                    if factor not in copies:
                        copies[factor] = cupy.asarray(
                            _storable(array if factor == 1 else array * factor)
                        )
                    stack[index :: len(FACTORS)] = copies[factor]
            if policy.flush:
                self.timers.allocate_flush_buffer()
        return CudaOperands(
            problem=problem,
            host_inputs=tuple(inputs),
            sets=tuple(zip(*stacks, outputs, strict=True)),
            outputs=outputs,
            host_output=np.empty(problem.output_shape, problem.types[-1]),
            stream=self.timers.stream,
            policy=policy,
            rotation=Rotation(policy.count),
        )

    def bind(self, point: Point, operands: OperandSets, rows: int | None = None) -> CudaKernel:
        """Return the compiled instance, or the library routine, bound to the operands.

        Raises CompileError, and DoesNotFitError if there is no memory for the routine's workspace.
        """
        if not isinstance(operands, CudaOperands):
            raise TypeError("the operands are not in device memory")
        problem = replace(point.problem, m=min(rows or point.problem.m, point.problem.m))
        with faults():
            routine = self._routine(point, problem, operands)
            self.timers.stream.use()  # the end of a stream's `with` selects the default stream
            functions.use_stream(self.timers.stream.pointer)
            needed = routine.workspace_bytes
            if needed and needed > (free := self.bytes_free()):
                raise DoesNotFitError(
                    f"needs {needed:,} bytes of workspace, but only {free:,} are free"
                )
            workspace = _workspace(routine)
            sets, placed = self._fixed.place(point, operands)
            sets = first_rows(sets, problem)
            launches = [routine.bind((*arrays, *workspace)) for arrays in sets]
        rotation: Iterator[Callable[[], None]] = map(launches.__getitem__, operands.rotation)
        (hosts,) = first_rows([(*operands.host_inputs, operands.host_output)], problem)
        if point.scope == Scope.END_TO_END:
            empty = cupy.zeros if point.variant.reads_output else cupy.empty
            rotation = _on_first_set(_end_to_end(routine, hosts, empty), operands.rotation)
        return CudaKernel(
            rotation=rotation,
            host_output=hosts[-1],
            output=sets[0][-1],
            placed=placed,
            point=point,
            policy=operands.policy,
            routine=routine,
            timers=self.timers,
        )

    def hold(
        self, memory: Any, values: Any, kernel: Any, launches: int, *, in_queue: bool
    ) -> Callable[[int], None] | None:
        """Prepare launches that wait for a seed (`HeldLaunches.hold`)."""

        def enqueue() -> None:
            with kernel.placed() if kernel else nullcontext():
                for launch in islice(kernel.rotation if kernel else (), launches):
                    launch()
                    if kernel.point.launches == Launches.WAITED:
                        cupy.cuda.get_current_stream().synchronize()

        return self._held.hold(memory, values, enqueue, in_queue=in_queue)

    @cached_property
    def _held(self) -> HeldLaunches:
        return HeldLaunches(self.timers.stream, self.device)

    def _routine(self, point: Point, problem: Problem, operands: CudaOperands) -> CudaRoutine:
        """Return the point's routine.

        The routine of a tuned library call uses the fastest algorithm for the operands.
        """
        variant = point.variant
        tune = variant.tune if isinstance(variant, CallVariant) else None
        if tune is None or problem != point.problem:  # fewer rows: the launch only predicts a time
            return self._instances.routine(point, problem)
        timers = self.timers
        before = timers.flush if operands.policy.flush else None
        in_graph, overlap = point.launches.in_graph, point.launches.overlap
        timer = timers.graph(overlap=overlap) if in_graph else timers.events

        def sample(call: Callable[..., None], launches: int) -> float:
            bind = call_routine(call).bind
            on_sets = (bind(operands.sets[index]) for index in operands.rotation)
            return timer.sample(on_sets, launches, 1, before)[0]

        cold = point.cache == Cache.COLD
        call, chosen = tune(problem, cold, sample, operands.policy.max_launches)
        return call_routine(call, chosen=chosen)

    def _policy(self, problem: Problem, *, cold: bool, one_set: bool = False) -> SetPolicy:
        # One set for each launch of a sample is enough, because a flush makes each set cold.
        max_sets = 1 if one_set else MAX_LAUNCHES
        return set_policy(problem, self.device.l2_bytes, cold=cold, max_sets=max_sets)


def _storable(array: Any) -> Any:
    """Return the array in a type that CuPy supports. CuPy lacks float8, which becomes bytes."""
    return array.view(np.uint8) if array.dtype.name.startswith("float8") else array


def _workspace(routine: CudaRoutine) -> tuple[Any, ...]:
    """Return a tuple with the workspace that a routine needs, or an empty tuple."""
    size = routine.workspace_bytes
    return (cupy.empty(size, np.uint8),) if size else ()


def _on_first_set(launch: Callable[[], None], rotation: Rotation) -> Iterator[Callable[[], None]]:
    """Yield the same launch endlessly, and record each use as a use of the first set."""
    while True:
        rotation.used.add(0)
        yield launch


def _end_to_end(
    routine: CudaRoutine, hosts: Sequence[np.ndarray], empty: Callable[..., Any]
) -> Callable[[], None]:
    """Return a function that launches with allocations and copies.

    The function allocates arrays, copies the inputs, launches, copies the result, and frees the
    arrays. The function uses `cudaMalloc` and `cudaFree`, and not CuPy's pool.
    """
    *inputs, output = hosts = [*map(_storable, hosts)]

    def run() -> None:
        with cupy.cuda.using_allocator(None):
            arrays = [empty(array.shape, array.dtype) for array in hosts]
            for array, host in zip(arrays, inputs, strict=False):
                array.set(host)
            routine.bind((*arrays, *_workspace(routine)))()
            arrays[-1].get(out=output)

    return run
