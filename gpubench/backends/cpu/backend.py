"""The CPU as a backend, which times loops compiled by Numba, and NumPy's BLAS."""

import sys
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import perf_counter, perf_counter_ns
from types import ModuleType
from typing import Any, Self

import numpy as np
import threadpoolctl

from gpubench.backends import Routine
from gpubench.backends.arrays import new_elements
from gpubench.backends.c_function import CFunction
from gpubench.backends.cpu.gauge import CpuGauge, describe_cpu
from gpubench.backends.functions import allocating, as_tensors, torch, why_not_called, writing
from gpubench.backends.rotation import (
    FixedArrays,
    OperandSets,
    Placed,
    Rotation,
    SetPolicy,
    first_rows,
    operand_factors,
    set_policy,
)
from gpubench.errors import (
    CompileError,
    DoesNotFitError,
    LaunchError,
    first_line,
    lacks_memory,
    missing_module,
    with_place,
)
from gpubench.hardware.host import cpu_threads, free_memory_bytes
from gpubench.model import CallVariant, Config, Device, HostVariant, Point, Problem, Scope, Series

MAX_SETS = 4096
"""Maximum number of operand sets. Only small problems need more sets. For such problems, the cache
is flushed instead, which takes tens of ms."""

Instance = tuple[str, str, Config | None, str, bool]
"""Key of a compiled function: operation, variant, tile, dtype, and whether the matrices have the
variant's layout."""

ALIGNMENT = 64  # alignment of operands in bytes, equal in all runs: the size of a cache line
OBJECT_BYTES = 2**12  # a call's allocations of fewer bytes are Python's own objects


class CpuTimer:
    """The state that all kernels share: the clock, the number of threads, and the cache flush."""

    def __init__(self, cache_bytes: int, clock_ns: Callable[[], int]) -> None:
        self.clock_ns = clock_ns
        self._threads: tuple[int, ...] = ()
        self._cache_bytes = cache_bytes
        self._flush_buffer: np.ndarray | None = None

    def flush(self) -> None:
        """Overwrite the contents of the last-level cache."""
        if self._flush_buffer is None:
            self._flush_buffer = np.zeros(2 * self._cache_bytes, np.uint8)
        self._flush_buffer += 1

    def limit_threads(self, threads: int) -> None:
        """Limit the number of threads in BLAS, and in Numba and torch if these are imported.

        A module that was imported since the last call, such as SciPy's, may have a BLAS of its own.
        """
        numba, limited = sys.modules.get("numba"), (threads, len(sys.modules))
        if limited == self._threads:
            return
        if torch():
            torch().set_num_threads(threads)
        if numba:
            numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))
        threadpoolctl.ThreadpoolController().limit(limits=threads, user_api="blas")
        self._threads = limited

    def forget_threads(self) -> None:
        """Limit the threads again before the next call, because a library may have been loaded."""
        self._threads = ()


@dataclass(frozen=True, kw_only=True)
class CpuKernel:
    """A compiled function bound to operands."""

    routine: Routine

    function: Callable[..., None]  # the function, which takes the output too
    call: Callable[..., None]  # the timed call: the function, or `_end_to_end`
    timer: CpuTimer
    sets: tuple[tuple[Any, ...], ...]
    rotation: Rotation
    flush: bool
    placed: Placed
    thread_counts: tuple[int, ...]
    max_launches: int
    min_launches: int = 1
    path: Path  # the variant's descriptor, for errors that the function raises

    def on_threads(self, count: int) -> Self:
        """Return the kernel with another number of threads."""
        return replace(self, thread_counts=(count,))

    def run(self, launches: int = 1) -> float:
        """Call the function on the next sets of operands. Return microseconds per call."""
        with self.placed():
            return self._time(self.rotation.take(launches))

    def watch(self) -> str:
        """Return a note on the memory that NumPy or torch allocates during a call.

        The note leaves out allocations that are smaller than the result, which are scratch memory,
        and allocations below OBJECT_BYTES, which are Python's own objects.
        """
        arrays = self.sets[next(self.rotation)]
        tracemalloc.start()
        try:
            self._call(arrays)
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        if torch():
            with torch().autograd.profiler.profile(profile_memory=True) as profile:
                self._call(arrays)
            events = profile.function_events
            torch_bytes = sum(max(event.self_cpu_memory_usage, 0) for event in events)
            peak_bytes = max(peak_bytes, torch_bytes)
        return allocating(peak_bytes if peak_bytes >= max(arrays[-1].nbytes, OBJECT_BYTES) else 0)

    def kernels_run(self) -> str:
        """Return an empty text, because a call on the CPU runs no kernels of a GPU."""
        return ""

    def sample(self, launches: int, count: int) -> list[float]:
        """Time batches of calls with the host's monotonic clock."""
        flush = self.timer.flush if self.flush else None
        with self.placed():
            return [self._time(self.rotation.take(launches, flush)) for _ in range(count)]

    def sustain(self, heat_s: float, timed_s: float) -> Series:
        """Call the function without a pause. The series has no measured energy."""
        times_us: list[float] = []
        started = perf_counter()
        while (spent_s := perf_counter() - started) < heat_s + timed_s or not times_us:
            launch_us = self.run()
            if spent_s >= heat_s:
                times_us.append(launch_us)
        return Series(times_us=tuple(times_us), launches_per_sample=1, stop_reason="sustained")

    def _time(self, indices: Sequence[int]) -> float:
        self.timer.limit_threads(self.thread_counts[0])
        sets = [self.sets[index] for index in indices]
        clock_ns = self.timer.clock_ns
        start_ns = clock_ns()
        for arrays in sets:
            self._call(arrays)
        return (clock_ns() - start_ns) / 1e3 / len(sets)

    def _call(self, arrays: tuple[Any, ...]) -> None:
        try:
            self.call(*arrays)
        except ModuleNotFoundError as error:
            raise missing_module(error) from error
        except Exception as error:
            if lacks_memory(error):
                raise DoesNotFitError(f"out of memory: {first_line(error)}") from error
            advice = why_not_called(self.function, arrays) if isinstance(error, TypeError) else ""
            why = f"{with_place(error, self.path)}{advice}"
            raise LaunchError(f"failed while running: {why}") from error


class CpuBackend:
    """Runs `CallVariant`s that take NumPy arrays."""

    xp: ModuleType = np
    ipc = None
    notices: tuple[str, ...] = ()

    def __init__(
        self,
        device: Device | None = None,
        max_sets: int = MAX_SETS,
        clock_ns: Callable[[], int] = perf_counter_ns,
    ) -> None:
        self.device = device or describe_cpu()
        self.gauge = CpuGauge(self.device)
        self.timer = CpuTimer(self.device.l2_bytes, clock_ns)
        self._max_sets = max_sets
        self._fixed = FixedArrays(_aligned_copy_in_layout)
        self._built: dict[Instance, Callable[..., None] | CompileError | DoesNotFitError] = {}

    def reset_caches(self) -> None:
        """Do nothing, because a function cannot pin lines in the cache of a CPU."""

    def warm_up(self) -> None:
        """Keep a core busy for 50 ms, until its clock has settled."""
        values = np.ones(1 << 16)
        end_s = perf_counter() + 0.05
        while perf_counter() < end_s:
            values.sum()

    def usable(self) -> bool:
        """Return true, because a call that fails raises an exception or ends the process."""
        return True

    def compile(self, points: Sequence[Point], on_built: Callable[[int], None]) -> None:
        """Build one instance after the other, because Numba compiles under a lock."""
        instances = {_instance(point): point for point in points}
        for count, point in enumerate(instances.values(), 1):
            self._build(point)
            on_built(count)

    def bytes_needed(self, problem: Problem, *, cold: bool, one_set: bool = False) -> int:
        """Return the number of bytes that all sets of operands take."""
        count = self._policy(problem, cold=cold, one_set=one_set).count
        return problem.bytes * (count + one_set)

    def bytes_free(self) -> int:
        """Return the number of bytes of main memory that are free or reclaimable."""
        return free_memory_bytes()

    def load(
        self, problem: Problem, inputs: Sequence[np.ndarray], *, cold: bool, one_set: bool = False
    ) -> OperandSets:
        """Copy the operands into arrays that begin at cache lines."""
        policy = self._policy(problem, cold=cold, one_set=one_set)
        output = np.zeros(problem.output_shape, problem.types[-1])
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
            host_inputs=tuple(inputs),
            sets=tuple(sets),
            rotation=Rotation(policy.count),
            policy=policy,
        )

    def bind(self, point: Point, operands: OperandSets, rows: int | None = None) -> CpuKernel:
        """Return the compiled function, bound to the operands. Raises CompileError."""
        function, variant = self._build(point), _call_variant(point)
        if isinstance(function, CompileError | DoesNotFitError):
            raise function
        problem = replace(point.problem, m=min(rows or point.problem.m, point.problem.m))
        sets, placed = self._fixed.place(point, operands)
        sets = first_rows(sets, problem)
        call = writes = writing(function, variant)
        if isinstance(function, CFunction):
            call = function.bind(problem)
        if point.scope == Scope.END_TO_END:
            call = partial(_end_to_end, call, variant)
        else:
            sets = tuple(as_tensors(variant.tensors, arrays) for arrays in sets)
        return CpuKernel(
            routine=Routine(call=function),
            function=writes,
            call=call,
            timer=self.timer,
            sets=sets,
            rotation=operands.rotation,
            flush=operands.policy.flush,
            thread_counts=_thread_counts(variant),
            max_launches=operands.policy.max_launches,
            placed=placed,
            path=variant.path,
        )

    def hold(
        self, memory: Any, values: Any, kernel: Any, launches: int, *, in_queue: bool
    ) -> Callable[[int], None] | None:
        """Return a function that fills `memory` and then calls the kernel.

        With `in_queue`, return None, because a CPU has no queue of launches.
        """

        def begin(seed: int) -> None:
            memory[...] = new_elements(values, seed, np.arange(memory.size))
            if launches:
                kernel.run(launches)

        return None if in_queue else begin

    def _build(self, point: Point) -> Callable[..., None] | CompileError | DoesNotFitError:
        """Return the function that was compiled for a point, or why it cannot be compiled."""
        key = _instance(point)
        if key not in self._built:
            self.timer.forget_threads()
            try:
                self._built[key] = _build(point)
            except ModuleNotFoundError as error:
                self._built[key] = missing_module(error)
            except (CompileError, DoesNotFitError) as error:
                self._built[key] = error
            except Exception as error:  # a descriptor may raise anything
                why = f"does not compile: {with_place(error, point.variant.path)}"
                self._built[key] = CompileError(why)
        return self._built[key]

    def _policy(self, problem: Problem, *, cold: bool, one_set: bool = False) -> SetPolicy:
        max_sets = 1 if one_set else self._max_sets
        return set_policy(problem, self.device.l2_bytes, cold=cold, max_sets=max_sets)


def _build(point: Point) -> Callable[..., None]:
    """Compile the function of a point's variant, and return it.

    If Numba's cache is writable, Numba keeps the function for later processes.
    """
    variant, dtype = _call_variant(point), point.problem.dtype
    if isinstance(variant, HostVariant):
        return CFunction(variant, dtype)
    has_own_layout = point.problem.column_major == variant.own_layout(dtype)
    build = variant.build if has_own_layout else (variant.build_strided or variant.build)
    try:
        return build(point.tile, dtype)
    except (OSError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "cannot cache function" not in str(error):
            raise
    with _without_numba_cache():
        return build(point.tile, dtype)


@contextmanager
def _without_numba_cache() -> Iterator[None]:
    """Let Numba ignore `cache=True` inside the block. Numba has no setting for this."""
    from numba.core.dispatcher import Dispatcher

    enable = Dispatcher.enable_caching
    Dispatcher.enable_caching = lambda _self: None  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        Dispatcher.enable_caching = enable  # type: ignore[method-assign]


def _thread_counts(variant: CallVariant) -> tuple[int, ...]:
    """Return the numbers of threads to choose from.

    If the variant states a number, this number is the only choice, or the number of CPUs if the
    machine has fewer CPUs. Otherwise, the choices are the number of CPUs and all smaller powers of
    two.
    """
    cpus = cpu_threads()
    powers = (1 << exponent for exponent in reversed(range((cpus - 1).bit_length())))
    return (min(variant.threads, cpus),) if variant.threads else (cpus, *powers)


def _end_to_end(call: Callable[..., None], variant: CallVariant, *arrays: np.ndarray) -> None:
    """Allocate arrays, copy the inputs, call the function, copy the result, and free the arrays."""
    *inputs, output = arrays
    result = np.zeros_like(output) if variant.reads_output else np.empty_like(output)
    call(*as_tensors(variant.tensors, (*(array.copy() for array in inputs), result)))
    output[...] = result


def _instance(point: Point) -> Instance:
    variant, problem = point.variant, point.problem
    has_own_layout = problem.column_major == variant.own_layout(problem.dtype)
    return variant.op, variant.name, point.tile, problem.dtype, has_own_layout


def _call_variant(point: Point) -> CallVariant:
    if not isinstance(point.variant, CallVariant):
        raise TypeError(f"{point.label} does not run on the CPU")
    return point.variant


def _aligned_copy_in_layout(array: np.ndarray) -> np.ndarray:
    return _aligned_copy(array) if array.flags.c_contiguous else _aligned_copy(array.T).T


def _aligned_copy(array: np.ndarray) -> np.ndarray:
    memory = np.empty(array.nbytes + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    copy = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy
