"""The stream in which kernels are timed, with events and timestamps; and measured ceilings."""

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
from gpubench.model import PRECISIONS, Device, Launch

SOURCE = Path(__file__).with_name("stream.cu")

TENSOR_SOURCE = Path(__file__).with_name("tensor_peak.cu")

TENSOR_THREADS, TENSOR_STEPS = 256, 4000

WARPGROUP_STEP_BYTES, WARP_STEP = 2 * 64 * 256 * 128, 8 * 2 * 16 * 8 * 16
"""Operations of `tensor_peak` per step: of a warpgroup with 1-byte operands, and of a warp."""

TENSOR_DTYPES = ("float16", "bfloat16", "tf32", "float64", "int8", "float8_e4m3")
"""Element types whose peaks are measured on 9.0. Elsewhere, only bfloat16 is measured."""

KERNELS = ("blocking_kernel", "timestamp_kernel", "multiply_add", "fingerprint", "pointer_chase")

TIMESTAMP_WORDS = 3
"""Words of a timestamp: cycles, nanoseconds, multiprocessor."""

MAX_TIMESTAMPS = 2048
"""Maximum number of timestamps between two synchronizations."""

WARM_STEPS = 20_000
"""Iterations of the multiply-add kernel in a burst: about 10 ms on a large GPU."""

SETTLED, SETTLED_BURSTS = 0.01, 3
"""The clock has settled when the rates of 3 bursts in a row differ by less than 1 %."""

MAX_BURSTS = 100

COPY_BYTES = 2**30
HOST_COPY_BYTES = 2**26
CHAIN_LOADS = 4096
CHAIN_CACHES = 2
"""Size of the memory that the chain of loads covers, in last-level caches."""

LINE_BYTES = 128
REPEATS = 10


class Timestamp(NamedTuple):
    """An event, and the slot of the timestamp recorded beside it."""

    event: Any
    slot: int

    @property
    def done(self) -> bool:
        """Whether the stream has reached the event."""
        return bool(self.event.done)


class CudaStream:
    """The current stream of a device, with the interface that `BlockedBatchTimer` uses."""

    def __init__(self, device: Device, architecture: str) -> None:
        self._device, self._architecture = device, architecture
        self._stream = cupy.cuda.get_current_stream()
        self.pointer = self._stream.ptr
        """The stream, as the driver takes it."""

        self._clock_mhz = device.sm_clock_mhz or 1000.0
        self._cycles = ctypes.c_longlong()
        blocking_kernel, timestamp_kernel, self._multiply_add, self._fingerprint, self._chase = (
            load_function(compile_instance(SOURCE, name, architecture)) for name in KERNELS
        )
        one_thread = Launch(grid=(1,), block=(1,))
        self._launch_blocking_kernel = bind_launch(blocking_kernel, one_thread, (self._cycles,))
        self._timestamps = cupy.zeros((MAX_TIMESTAMPS, TIMESTAMP_WORDS), np.int64)
        self._host_timestamps = np.zeros((MAX_TIMESTAMPS, TIMESTAMP_WORDS), np.int64)
        self._launch_timestamp_kernel = [
            bind_launch(timestamp_kernel, one_thread, (ctypes.c_void_p(row.data.ptr),))
            for row in self._timestamps
        ]
        self._events = [cupy.cuda.Event() for _ in range(MAX_TIMESTAMPS)]
        self._used = 0

    def launch_empty(self) -> None:
        """Launch a kernel that returns at once."""
        self.block(0.0)

    def block(self, microseconds: float) -> None:
        """Keep the stream busy for at least this time."""
        self._cycles.value = int(microseconds * self._clock_mhz)
        self._launch_blocking_kernel()  # the driver copies the arguments when it enqueues

    def record_start(self) -> Timestamp:
        """Enqueue a timestamp, then an event. A sample starts after both."""
        start = self._next_timestamp()
        self._launch_timestamp_kernel[start.slot]()
        start.event.record(self._stream)
        return start

    def record_stop(self) -> Timestamp:
        """Enqueue an event, then a timestamp. A sample ends before both."""
        stop = self._next_timestamp()
        stop.event.record(self._stream)
        self._launch_timestamp_kernel[stop.slot]()
        return stop

    def wait(self, timestamp: Timestamp) -> None:
        """Wait until the stream has reached the timestamp."""
        timestamp.event.synchronize()

    def synchronize(self) -> None:
        """Wait for all work. The timestamps stay valid until further timestamps are enqueued."""
        self._stream.synchronize()
        if self._used:
            self._host_timestamps[: self._used] = self._timestamps[: self._used].get()
        self._used = 0

    def elapsed_us(self, start: Timestamp, stop: Timestamp) -> float:
        """Return the time between the two events."""
        return float(cupy.cuda.get_elapsed_time(start.event, stop.event)) * 1e3

    def clock_mhz(self, start: Timestamp, stop: Timestamp) -> float | None:
        """Return the multiprocessor's clock in between, or None for different multiprocessors."""
        cycles, nanoseconds, multiprocessor = (
            self._host_timestamps[stop.slot] - self._host_timestamps[start.slot]
        ).tolist()
        return cycles / nanoseconds * 1e3 if multiprocessor == 0 and nanoseconds > 0 else None

    def fingerprints(self, arrays: Any) -> list[int]:
        """Return a number for each of the stacked arrays. Equal bits give equal numbers."""
        count, words = len(arrays), arrays[0].nbytes // 2
        sums = cupy.zeros(count, np.uint64)
        threads = 256
        blocks = min(-(-words // threads), 16 * self._device.multiprocessors)
        arguments = (
            ctypes.c_void_p(arrays.data.ptr),
            ctypes.c_longlong(words),
            ctypes.c_void_p(sums.data.ptr),
        )
        bind_launch(self._fingerprint, Launch(grid=(blocks, count), block=(threads,)), arguments)()
        return [int(number) for number in sums.get()]

    def warm_up(self) -> None:
        """Multiply-add until the rate is steady, so that the clock has settled under load."""
        rates = deque(
            (self.fma_gflops(repeats=1) for _ in range(SETTLED_BURSTS)), maxlen=SETTLED_BURSTS
        )
        for _ in range(MAX_BURSTS):
            if max(rates) - min(rates) < SETTLED * max(rates):
                return
            rates.append(self.fma_gflops(repeats=1))

    def fma_gflops(self, repeats: int = REPEATS) -> float:
        """Return the median rate of float32 multiply-adds, each counted as two operations."""
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

    def tensor_gflops(self) -> dict[str, float]:
        """Return the median rates of products on tensor cores, by dtype.

        Empty for GPUs without tensor cores, and for GPUs whose full rate needs other instructions.
        """
        capability = self._device.compute_capability or (0, 0)
        hopper = capability == (9, 0)
        if not (hopper or capability[0] in {8, 12}):
            return {}
        dtypes = TENSOR_DTYPES if hopper else ("bfloat16",)
        return {dtype: self._tensor_gflops(dtype, hopper=hopper) for dtype in dtypes}

    def _tensor_gflops(self, dtype: str, *, hopper: bool) -> float:
        architecture = f"{self._architecture}a" if hopper else self._architecture
        precision = PRECISIONS[dtype]
        name = f"tensor_peak<{precision.cpp}>"
        function = load_function(compile_instance(TENSOR_SOURCE, name, architecture))
        blocks = self._device.multiprocessors * (1 if hopper else 4)
        out = cupy.empty(blocks * TENSOR_THREADS, np.float32)
        launch = bind_launch(
            function,
            Launch(grid=(blocks,), block=(TENSOR_THREADS,)),
            (ctypes.c_void_p(out.data.ptr), ctypes.c_int(TENSOR_STEPS)),
        )
        a_step = TENSOR_THREADS // 32 * WARP_STEP
        if hopper and dtype != "float64":
            a_step = TENSOR_THREADS // 128 * WARPGROUP_STEP_BYTES // precision.item_bytes
        return blocks * TENSOR_STEPS * a_step / self._median_us(launch, REPEATS) / 1e3

    def copy_gbytes_per_s(self) -> float:
        """Return the median rate of a copy in device memory: bytes read plus bytes written."""
        return 2 * COPY_BYTES / self.copy_us() / 1e3

    def copy_us(self) -> float:
        """Return the time of a copy of `COPY_BYTES` in device memory."""
        source, target = cupy.zeros(COPY_BYTES, np.uint8), cupy.empty(COPY_BYTES, np.uint8)
        pointers = target.data.ptr, source.data.ptr
        return self._timed_copy_us(*pointers, COPY_BYTES, runtime.memcpyDeviceToDevice)

    def host_copy_us(self, kind: int) -> float:
        """Return the time of a copy of `HOST_COPY_BYTES` between device and pinned host memory."""
        host = cupy.cuda.alloc_pinned_memory(HOST_COPY_BYTES)
        on_device = cupy.zeros(HOST_COPY_BYTES, np.uint8)
        pointers = on_device.data.ptr, host.ptr
        if kind == runtime.memcpyDeviceToHost:
            pointers = host.ptr, on_device.data.ptr
        return self._timed_copy_us(*pointers, HOST_COPY_BYTES, kind)

    def latency_us(self) -> float:
        """Return the time of a chain of `CHAIN_LOADS` dependent loads from device memory.

        They access twice the last-level cache in random order, so that each load goes to memory.
        """
        lines = CHAIN_CACHES * self._device.l2_bytes // LINE_BYTES
        order = np.random.default_rng(0).permutation(lines)
        words = LINE_BYTES // 4
        chain = np.zeros((lines, words), np.uint32)
        chain[order, 0] = np.roll(order, -1) * words
        following, out = cupy.asarray(chain), cupy.empty(1, np.uint32)
        arguments = (
            ctypes.c_void_p(following.data.ptr),
            ctypes.c_int(CHAIN_LOADS),
            ctypes.c_void_p(out.data.ptr),
        )
        chase = bind_launch(self._chase, Launch(grid=(1,), block=(1,)), arguments)
        chase()
        return self._median_us(chase, REPEATS)

    def _timed_copy_us(self, target: int, source: int, size: int, kind: int) -> float:
        def copy() -> None:
            runtime.memcpyAsync(target, source, size, kind, self._stream.ptr)

        copy()
        return self._median_us(copy, REPEATS)

    def _median_us(self, enqueue: Callable[[], None], repeats: int) -> float:
        pairs = []
        for _ in range(repeats):
            start = self.record_start()
            enqueue()
            pairs.append((start, self.record_stop()))
        self.synchronize()
        return statistics.median(self.elapsed_us(*pair) for pair in pairs)

    def _next_timestamp(self) -> Timestamp:
        timestamp = Timestamp(self._events[self._used], self._used)
        self._used += 1
        return timestamp
