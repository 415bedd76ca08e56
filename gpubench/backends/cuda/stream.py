"""A stream that is timed: gates, events, stamps; and the device's measured ceilings."""

from __future__ import annotations

import ctypes
import statistics
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import cupy
import numpy as np
from cupy.cuda import runtime

from gpubench.backends.cuda.compile import compile_instance
from gpubench.backends.cuda.launching import bind_launch, load_function
from gpubench.model import Device, Launch

SOURCE = Path(__file__).with_name("stream.cu")

STAMP_WORDS = 3
"""Cycles, nanoseconds, multiprocessor."""

MAX_MARKS = 2048
"""Of samples between two synchronizations."""

WARM_STEPS = 20_000
"""Of the multiply-add kernel in a warm-up burst: about 10 ms on a large GPU."""

SETTLED = 0.01
"""`ALIKE` bursts in a row whose rates differ by less are at the clock that stays."""

ALIKE = 3
MAX_BURSTS = 100

COPY_BYTES = 2**30
REPEATS = 10


class Mark(NamedTuple):
    """An event with a stamp beside it."""

    event: Any
    slot: int

    @property
    def done(self) -> bool:
        """Whether the stream has passed it."""
        return bool(self.event.done)


class CudaStream:
    """What `BlockedBatchTimer` needs of the current stream of a device."""

    def __init__(self, device: Device, architecture: str) -> None:
        self._device = device
        self._stream = cupy.cuda.get_current_stream()
        self._clock_mhz = device.sm_clock_mhz or 1000.0
        self._cycles = ctypes.c_longlong()
        self._open_gate = bind_launch(
            load_function(compile_instance(SOURCE, "gate", architecture)),
            Launch(grid=(1,), block=(1,)),
            (self._cycles,),
        )
        self._stamps = cupy.zeros((MAX_MARKS, STAMP_WORDS), np.int64)
        stamp = load_function(compile_instance(SOURCE, "stamp", architecture))
        self._stamp = [
            bind_launch(stamp, Launch(grid=(1,), block=(1,)), (ctypes.c_void_p(row.data.ptr),))
            for row in self._stamps
        ]
        self._events = [cupy.cuda.Event() for _ in range(MAX_MARKS)]
        self._used = 0
        self._read_stamps = np.zeros((MAX_MARKS, STAMP_WORDS), np.int64)
        self._multiply_add = load_function(compile_instance(SOURCE, "multiply_add", architecture))

    def nothing(self) -> None:
        """Launch a kernel that does next to nothing: a gate that is open."""
        self._cycles.value = 0
        self._open_gate()

    def gate(self, microseconds: float) -> None:
        """Keep the stream busy for at least so long."""
        self._cycles.value = int(microseconds * self._clock_mhz)
        self._open_gate()  # the driver copies the arguments when it enqueues

    def begin(self) -> Mark:
        """Enqueue a stamp, then an event: a sample begins behind them."""
        mark = self._next_mark()
        self._stamp[mark.slot]()
        mark.event.record(self._stream)
        return mark

    def end(self) -> Mark:
        """Enqueue an event, then a stamp: a sample ended before them."""
        mark = self._next_mark()
        mark.event.record(self._stream)
        self._stamp[mark.slot]()
        return mark

    def synchronize(self) -> None:
        """Wait for all that was enqueued; marks may be used again once they were read."""
        self._stream.synchronize()
        if self._used:
            self._read_stamps[: self._used] = self._stamps[: self._used].get()
        self._used = 0

    def elapsed_us(self, start: Mark, stop: Mark) -> float:
        """Between two marks."""
        return float(cupy.cuda.get_elapsed_time(start.event, stop.event)) * 1e3

    def clock_mhz(self, start: Mark, stop: Mark) -> float | None:
        """The multiprocessor clock between two marks; None if they ran on different ones."""
        cycles, nanoseconds, multiprocessor = (
            self._read_stamps[stop.slot] - self._read_stamps[start.slot]
        ).tolist()
        return cycles / nanoseconds * 1e3 if multiprocessor == 0 and nanoseconds > 0 else None

    def warm_up(self) -> None:
        """Multiply-add until the rate stays the same: the clock has settled under load."""
        rates = deque((self.fma_gflops(repeats=1) for _ in range(ALIKE)), maxlen=ALIKE)
        for _ in range(MAX_BURSTS):
            if max(rates) - min(rates) < SETTLED * max(rates):
                return
            rates.append(self.fma_gflops(repeats=1))

    def fma_gflops(self, repeats: int = REPEATS) -> float:
        """Measured float32 multiply-add rate, an operation counted as two; the median."""
        blocks, threads, chains = 16 * self._device.multiprocessors, 256, 16
        out = cupy.empty(blocks * threads, np.float32)
        launch = bind_launch(
            self._multiply_add,
            Launch(grid=(blocks,), block=(threads,)),
            (
                ctypes.c_void_p(out.data.ptr),
                ctypes.c_float(0.999),
                ctypes.c_float(0.001),
                ctypes.c_int(WARM_STEPS),
            ),
        )
        flops = 2 * blocks * threads * chains * WARM_STEPS
        return flops / self._median_us(launch, repeats) / 1e3

    def copy_gbytes_per_s(self) -> float:
        """Measured device-to-device copy: bytes read plus bytes written; the median."""
        source, target = cupy.zeros(COPY_BYTES, np.uint8), cupy.empty(COPY_BYTES, np.uint8)

        def copy() -> None:
            runtime.memcpyAsync(
                target.data.ptr,
                source.data.ptr,
                COPY_BYTES,
                runtime.memcpyDeviceToDevice,
                self._stream.ptr,
            )

        copy()
        return 2 * COPY_BYTES / self._median_us(copy, REPEATS) / 1e3

    def _median_us(self, enqueue: Callable[[], None], repeats: int) -> float:
        marks = []
        for _ in range(repeats):
            start = self.begin()
            enqueue()
            marks.append((start, self.end()))
        self.synchronize()
        return statistics.median(self.elapsed_us(*pair) for pair in marks)

    def _next_mark(self) -> Mark:
        mark = Mark(self._events[self._used], self._used)
        self._used += 1
        return mark
