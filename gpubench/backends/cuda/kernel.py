"""A kernel that is bound to operands on a GPU, and the four ways to time it.

Launches without copies are timed by the blocked batch (events), by CUPTI, or as replays of a graph.
Launches with copies and allocations, and launches that the host waits for, are timed by events
while no kernel blocks the stream.
"""

import statistics
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, repeat
from time import perf_counter_ns, sleep
from typing import Any, Self

import cupy
import numpy as np
from cupy.cuda import runtime

from gpubench.backends.cuda.cupti import CuptiTimer
from gpubench.backends.cuda.graph import GraphTimer, captured, node_names, overlaps
from gpubench.backends.cuda.host_function import HostFunction, kernel_name
from gpubench.backends.cuda.launching import CudaRoutine
from gpubench.backends.cuda.stream import CudaStream
from gpubench.backends.cuda.sustained import sustain
from gpubench.backends.cuda.timer import (
    CALIBRATION_LAUNCHES,
    CALIBRATION_SAMPLES,
    BlockedBatchTimer,
)
from gpubench.backends.functions import allocating, torch
from gpubench.backends.rotation import CACHES_TO_OUTGROW, Placed, SetPolicy
from gpubench.errors import CompileError, DoesNotFitError, LaunchError, first_line, lacks_memory
from gpubench.model import Launches, Point, Scope, Series, State, Timer

BLOCKED_S = 0.02
"""Time for which the stream is blocked to find out whether a call computes in another stream."""

UNWRITTEN = 0xA5  # content of each byte of the output before the call that is checked


class CudaTimers:
    """The state that all kernels share: the stream, its timers, and the flush of the cache."""

    def __init__(
        self,
        stream: CudaStream,
        cache_bytes: int,
        energy_j: Callable[[], float | None] = lambda: None,
    ) -> None:
        self.stream = stream
        self.events = BlockedBatchTimer(stream)
        self.energy_j = energy_j
        self.flush_bytes = CACHES_TO_OUTGROW * cache_bytes
        self._flush_buffer: Any = None
        self._graphs: dict[bool, GraphTimer] = {}

    @cached_property
    def cupti(self) -> CuptiTimer:
        """The CUPTI timer, which records nothing until its first sample."""
        return CuptiTimer(cupy.cuda.get_current_stream().synchronize)

    def graph(self, *, overlap: bool) -> GraphTimer:
        """Return the timer of graphs, which is calibrated when it is first used."""
        if overlap not in self._graphs:
            timer = GraphTimer(self.stream, overlap=overlap)
            timer.calibrate(self.stream.launch_empty)
            self._graphs[overlap] = timer
        return self._graphs[overlap]

    @cached_property
    def launch_gap_us(self) -> float:
        """Time per launch in a stream minus the time in a graph, measured with an empty kernel."""
        empty = self.stream.launch_empty
        stream_us, graph_us = (
            statistics.median(
                timer.sample(repeat(empty), CALIBRATION_LAUNCHES, CALIBRATION_SAMPLES)
            )
            for timer in (self.events, self.graph(overlap=False))
        )
        return stream_us - graph_us

    def allocate_flush_buffer(self) -> None:
        """Allocate the buffer that `flush` overwrites, if it does not exist."""
        if self._flush_buffer is None:
            self._flush_buffer = cupy.empty(self.flush_bytes, np.uint8)

    def flush(self) -> None:
        """Enqueue a write that evicts the contents of the last-level cache."""
        runtime.memsetAsync(
            self._flush_buffer.data.ptr, 0, self.flush_bytes, cupy.cuda.get_current_stream().ptr
        )


@dataclass(frozen=True, kw_only=True)
class CudaKernel:
    """A kernel or library routine bound to operands."""

    rotation: Iterator[Callable[[], None]]
    """Iterator of functions, each of which launches on the next set of operands. All kernels on the
    same operands share the order of the sets. A function enqueues its launch, and does not wait."""

    routine: CudaRoutine
    timers: CudaTimers
    host_output: np.ndarray
    """The array to which a launch that is timed end to end copies its result."""

    output: Any  # the output of the first set
    point: Point
    policy: SetPolicy
    placed: Placed = nullcontext
    thread_counts: tuple[int, ...] = ()

    def kernels_run(self) -> str:
        """Return the names of the kernels that a launch runs, with counts.

        If the names cannot be found, the text has the reason. The launch is captured as a graph.
        For a call that may wait for the device, the text is empty. Such a call is not captured,
        because the CUDA functions in the call would fail, and the call could end the process.
        """
        if self.point.scope == Scope.END_TO_END or self._may_wait:
            return ""
        launches = islice(self.rotation, 1)
        try:
            with captured(self.timers.stream.pointer, launches, overlap=True) as graph:
                names = [kernel_name(x).partition("<")[0] for x in node_names(graph)]
        except Exception as error:  # without the names, the kernel can still be timed
            return f"unknown: {first_line(error)}"
        counts = Counter(names)
        return "; ".join(f"{x} ({n} times)" if n > 1 else x for x, n in counts.items())

    def on_threads(self, _count: int) -> Self:
        """Return the kernel itself, because the number of CPU threads does not matter."""
        return self

    def run(self, launches: int = 1) -> None:
        """Launch on the next sets of operands, and wait until the device has ended all work."""
        with faults(), self.placed():
            for launch in islice(self.rotation, launches):
                launch()
            runtime.deviceSynchronize()  # a library's function may launch in the default stream
            if self.point.scope == Scope.END_TO_END:
                self.output.set(self.host_output)

    def watch(self) -> str:
        """Return a note on what a call does besides computing, such as allocating memory.

        Raises LaunchError for a call that waits for the device, or computes in another stream.
        """
        call = self.routine.call
        with faults():
            calls_note = call.watch(next(self.rotation)) if isinstance(call, HostFunction) else ""
        with faults(), _Allocations() as allocations:
            waits = self.timers.events.waits(next(self.rotation))
        if waits and not self._may_wait:
            raise LaunchError(
                "the call waits for the GPU (it synchronizes, or copies to the host), so launches "
                "cannot be enqueued behind one another: remove the wait, or use --launches waited"
            )
        with faults():
            elsewhere = self._computes_elsewhere()
        if elsewhere:
            raise LaunchError(
                "the call computes in a stream that the current stream does not wait for, so the "
                "call cannot be timed: compute in the current stream, or let the current stream "
                "wait for an event"
            )
        unknown = f"it is not known whether the launches overlap: {self._overlap[1]}"
        apart = "the launches overlap in a stream, so they are timed in a graph with full edges"
        if self.point.state == State.SUSTAINED:
            apart = "the launches overlap, so the sustained time is the time per launch in a chain"
        overlap = unknown if self._overlap[1] else apart * self._overlap[0]
        waiting = "each call waits for the GPU" if waits else ""
        return ";".join(filter(None, (allocating(allocations.bytes), calls_note, waiting, overlap)))

    @cached_property
    def _overlap(self) -> tuple[bool, str]:
        """Whether a call's launches overlap, and a text that has the reason if this is unknown.

        Only points with `Launches.ALONE` are examined. Compiled kernels are launched without the
        attribute that lets them start early, but a library's call may use this attribute.
        Therefore, two calls are captured as a graph, whose edges show whether the calls overlap.
        Calls that are timed end to end or by CUPTI are not captured, because such calls are never
        timed in a graph.
        """
        in_batches = (self.point.scope, self.point.timer) == (Scope.KERNEL, Timer.EVENTS)
        if self.routine.call is None or self.point.launches != Launches.ALONE or not in_batches:
            return False, ""
        try:
            return overlaps(self.timers.stream.pointer, self._launched()), ""
        except DoesNotFitError as error:
            return False, str(error)

    def _launched(self) -> Callable[[], None]:
        """Enqueue the next launch, and return it.

        This launch is needed before a capture, because a function may copy tables to the GPU in its
        first call for a size. A capture refuses the copy, and some functions then end the process.
        """
        launch = next(self.rotation)
        launch()
        return launch

    @property
    def _may_wait(self) -> bool:
        return self.point.launches == Launches.WAITED or self.point.timer == Timer.CUPTI

    @property
    def _is_replayed(self) -> bool:
        """Whether launches are timed as nodes of a graph."""
        return self.point.launches.in_graph or self._overlap[0]

    @property
    def min_launches(self) -> int:
        """Minimum number of launches in a sample. A graph that is replayed must use every set."""
        return self.policy.min_launches if self._is_replayed else 1

    @property
    def max_launches(self) -> int:
        """Maximum number of launches in a sample."""
        return self.policy.max_launches

    def _computes_elsewhere(self) -> bool:
        """Return whether a call computes in a stream that the timed stream does not wait for.

        Return false if two conditions hold. First, no result appears while the timed stream is
        blocked. Second, a copy that is enqueued right behind the call has the whole result.
        """
        stream, address, count = self.timers.stream, self.output.data.ptr, self.output.nbytes
        early, behind = cupy.empty(count, np.uint8), cupy.empty(count, np.uint8)
        current, other = cupy.cuda.get_current_stream(), cupy.cuda.Stream(non_blocking=True)
        runtime.memset(address, UNWRITTEN, count)
        stream.synchronize()
        stream.block(BLOCKED_S * 1e6)
        start = stream.record_start()
        next(self.rotation)()
        sleep(BLOCKED_S / 2)
        kind = runtime.memcpyDeviceToDevice
        runtime.memcpyAsync(early.data.ptr, address, count, kind, other.ptr)
        other.synchronize()
        blocked = not start.done
        runtime.memcpyAsync(behind.data.ptr, address, count, kind, current.ptr)
        stream.synchronize()
        runtime.deviceSynchronize()
        result = cupy.ndarray(count, np.uint8, memptr=self.output.data).get()
        appeared = blocked and bool((early.get() != UNWRITTEN).any())
        return appeared or not np.array_equal(behind.get(), result)

    def sample(self, launches: int, count: int) -> list[float]:
        """Time samples in the way that fits the point, as the module's docstring describes."""
        timers = self.timers
        before = timers.flush if self.policy.flush else None
        with faults(), self.placed():
            if self.point.scope == Scope.END_TO_END or self.point.launches == Launches.WAITED:
                return self._sample_unblocked(launches, count, before)
            if self.point.timer == Timer.CUPTI:
                return timers.cupti.sample(self.rotation, launches, count, before)
            if not self._is_replayed:
                return timers.events.sample(self.rotation, launches, count, before)
            if self.routine.call:
                self._launched()
            graph = timers.graph(overlap=self.point.launches.overlap)
            gap_us = 0.0 if self.point.launches.in_graph else timers.launch_gap_us
            launches = max(launches, self.min_launches)
            times = graph.sample(self.rotation, launches, count, before)
            timers.events.set_clock_mhz(graph.take_clock_mhz())
            return [time_us + gap_us for time_us in times]

    def sustain(self, heat_s: float, timed_s: float) -> Series:
        """Launch without a pause. The next call of `health` returns the clock rate."""
        timers = self.timers
        with faults(), self.placed():
            launch_us = min(timers.events.sample(self.rotation, 1, 3))
            series, mhz = sustain(
                timers.stream, self.rotation, launch_us, heat_s, timed_s, timers.energy_j
            )
            timers.events.set_clock_mhz(mhz)
        return series

    def _sample_unblocked(
        self, launches: int, count: int, before: Callable[[], None] | None
    ) -> list[float]:
        """Time samples without a blocking kernel, because pageable copies would wait for it.

        `before` is not timed. With `Launches.WAITED`, the host waits for each launch.
        """
        times, stream = [], self.timers.stream
        end_to_end = self.point.scope == Scope.END_TO_END
        waited = self.point.launches == Launches.WAITED
        for _ in range(count):
            if not end_to_end:
                if before:
                    before()
                stream.synchronize()  # work in the queue would hide the time of the first call
            start = stream.record_start()
            for launch in islice(self.rotation, launches):
                called_ns = perf_counter_ns()
                launch()
                if waited:
                    self.timers.events.add_host_us((perf_counter_ns() - called_ns) / 1e3)
                    cupy.cuda.get_current_stream().synchronize()
            stop = stream.record_stop()
            stream.synchronize()
            times.append(stream.elapsed_us(start, stop) / launches)
        if end_to_end:
            self.output.set(self.host_output)
        return times


class _Allocations(cupy.cuda.MemoryHook):  # type: ignore[misc] # CuPy has no types
    """Counts the bytes that CuPy's pool and torch's pool allocate inside the block."""

    name = "gpubench"

    def __init__(self) -> None:
        self.bytes = -_torch_allocated_bytes()

    def malloc_preprocess(self, **facts: int) -> None:
        """Count an allocation from CuPy's pool."""
        self.bytes += facts["size"]

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self.bytes += _torch_allocated_bytes()


def _torch_allocated_bytes() -> int:
    stats = torch().cuda.memory_stats() if torch() else {}
    return int(stats.get("allocated_bytes.all.allocated", 0))


@contextmanager
def faults() -> Iterator[None]:
    """Raise other errors as DoesNotFitError (too little memory) or LaunchError (other errors)."""
    try:
        yield
    except (CompileError, DoesNotFitError, LaunchError):
        raise
    except Exception as error:  # errors of CUDA and cuBLAS in CuPy, and of a variant's function
        if lacks_memory(error):
            raise DoesNotFitError(f"out of device memory: {first_line(error)}") from error
        raise LaunchError(first_line(error)) from error
