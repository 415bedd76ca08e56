"""The stream in which kernels are timed, with events and timestamps."""

import ctypes
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import cupy
import numpy as np

from gpubench.backends.cuda.compile import compile_instance
from gpubench.backends.cuda.launching import bind_own, load_function
from gpubench.model import Device

SOURCE = Path(__file__).with_name("stream.cu")

TIMESTAMP_WORDS = 3  # words of a timestamp: cycles, nanoseconds, multiprocessor
MAX_TIMESTAMPS = 2048  # number of timestamps that are kept. A further one replaces the oldest


def own_kernel(name: str, device: Device) -> Any:
    """Compile a kernel of stream.cu, and load it on the current device."""
    return load_function(compile_instance(SOURCE, name, device.architecture))


class Timestamp(NamedTuple):
    """An event, and the slot of the timestamp that is recorded next to it in the stream."""

    event: Any
    slot: int

    @property
    def done(self) -> bool:
        """Whether the stream has reached the event."""
        return bool(self.event.done)


class CudaStream:
    """The current stream of a device, with the interface that `BlockedBatchTimer` uses."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._stream = cupy.cuda.get_current_stream()
        self.pointer = self._stream.ptr  # the stream's handle for calls of the driver
        self.nominal_mhz = device.sm_clock_mhz or 1000.0
        self._cycles = ctypes.c_longlong()
        self._fingerprint = own_kernel("fingerprint", device)
        blocking_kernel, timestamp_kernel = (
            own_kernel(name, device) for name in ("blocking_kernel", "timestamp_kernel")
        )
        self._launch_blocking_kernel = bind_own(blocking_kernel, (1,), 1, self._cycles)
        self._timestamps = cupy.zeros((MAX_TIMESTAMPS, TIMESTAMP_WORDS), np.int64)
        self._host_timestamps = np.zeros((MAX_TIMESTAMPS, TIMESTAMP_WORDS), np.int64)
        self._launch_timestamp_kernel = [
            bind_own(timestamp_kernel, (1,), 1, row) for row in self._timestamps
        ]
        self._events = [cupy.cuda.Event() for _ in range(MAX_TIMESTAMPS)]
        self._used = 0

    def use(self) -> None:
        """Make the stream CuPy's current stream."""
        self._stream.use()

    def launch_empty(self) -> None:
        """Launch a kernel that returns immediately."""
        self.block(0.0)

    def block(self, microseconds: float) -> None:
        """Keep the stream busy for at least this number of microseconds."""
        self._cycles.value = int(microseconds * self.nominal_mhz)
        self._launch_blocking_kernel()  # this call copies the arguments

    def record_start(self) -> Timestamp:
        """Enqueue a timestamp, then an event. A sample starts after the event."""
        start = self._next_timestamp()
        self._launch_timestamp_kernel[start.slot]()
        start.event.record(self._stream)
        return start

    def record_stop(self) -> Timestamp:
        """Enqueue an event, then a timestamp. A sample ends before the event."""
        stop = self._next_timestamp()
        stop.event.record(self._stream)
        self._launch_timestamp_kernel[stop.slot]()
        return stop

    def wait(self, timestamp: Timestamp) -> None:
        """Wait until the stream has reached the timestamp."""
        timestamp.event.synchronize()

    def synchronize(self) -> None:
        """Wait for all work in the stream.

        The timestamps stay valid until further timestamps are enqueued.
        """
        self._stream.synchronize()
        if kept := min(self._used, MAX_TIMESTAMPS):
            self._host_timestamps[:kept] = self._timestamps[:kept].get()
        self._used = 0

    def elapsed_us(self, start: Timestamp, stop: Timestamp) -> float:
        """Return the time between the events of two timestamps."""
        return float(cupy.cuda.get_elapsed_time(start.event, stop.event)) * 1e3

    def between_us(self, start: Timestamp, stop: Timestamp) -> float:
        """Return the time between the two timestamps by the device's own timer, without events."""
        _, nanoseconds, _ = self._host_timestamps[stop.slot] - self._host_timestamps[start.slot]
        return float(nanoseconds) / 1e3

    def clock_mhz(self, start: Timestamp, stop: Timestamp) -> float | None:
        """Return the clock rate, or None if two multiprocessors recorded the timestamps."""
        cycles, nanoseconds, multiprocessor = (
            self._host_timestamps[stop.slot] - self._host_timestamps[start.slot]
        ).tolist()
        return cycles / nanoseconds * 1e3 if multiprocessor == 0 and nanoseconds > 0 else None

    def fingerprints(self, arrays: Any) -> list[int]:
        """Return a number for each array in `arrays`. Equal bits give equal numbers."""
        count, words = len(arrays), arrays[0].nbytes // 2
        sums = cupy.zeros(count, np.uint64)
        threads = 256
        blocks = min(-(-words // threads), 16 * self._device.multiprocessors)
        numbers = map(ctypes.c_longlong, (words, arrays.strides[0] // 2))
        bind_own(self._fingerprint, (blocks, count), threads, arrays, *numbers, sums)()
        return [int(number) for number in sums.get()]

    def median_us(self, enqueue: Callable[[], None], repeats: int) -> float:
        """Return the median time of the work that a call of `enqueue` enqueues."""
        pairs = []
        for _ in range(repeats):
            start = self.record_start()
            enqueue()
            pairs.append((start, self.record_stop()))
        self.synchronize()
        return statistics.median(self.elapsed_us(*pair) for pair in pairs)

    def _next_timestamp(self) -> Timestamp:
        slot = self._used % MAX_TIMESTAMPS
        self._used += 1
        return Timestamp(self._events[slot], slot)
