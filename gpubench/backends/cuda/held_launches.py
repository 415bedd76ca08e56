"""Launches that wait on the device for a seed, which determines their operands.

No process can compute the results before the seed is written. When the seed is written, the host
has already enqueued all launches. Another process can therefore time short launches, from the
moment when it writes the seed to the end of the last launch.
"""

import ctypes
from collections.abc import Callable
from typing import Any

import cupy
import numpy as np

from gpubench.backends.cuda.kernel import faults
from gpubench.backends.cuda.launching import bind_own
from gpubench.backends.cuda.stream import CudaStream, own_kernel
from gpubench.model import Device

MAX_WAIT_US = 5e5  # if no seed is written, the launches begin after this time

THREADS = 256
MAX_BLOCKS = 4096

WORDS = {1: "unsigned char", 2: "unsigned short", 4: "unsigned int", 8: "unsigned long long"}
"""Unsigned types for the bits of an element, by the element's number of bytes."""


class HeldLaunches:
    """Holds launches back on the device until a seed is written into host memory."""

    def __init__(self, stream: CudaStream, device: Device) -> None:
        self._stream, self._device = stream, device
        self._memory = cupy.cuda.alloc_pinned_memory(8)
        self._stored = np.frombuffer(self._memory, np.uint64, 1)
        self._seed = cupy.zeros(1, np.uint64)
        self._wait = own_kernel("wait_for_seed", device)
        self._fill: dict[str, Any] = {}

    def hold(
        self, memory: Any, values: Any, enqueue: Callable[[], None], *, in_queue: bool
    ) -> Callable[[int], None] | None:
        """Enqueue launches. Return a function that writes the seed, and waits until launches end.

        The seed determines which of `values` fill `memory`. Return None if the device began before
        all launches were enqueued. Without `in_queue`, the launches are not enqueued until the
        returned function is called. Raises LaunchError.
        """
        fill = f"new_elements<{WORDS[memory.dtype.itemsize]}>"
        with faults():
            if fill not in self._fill:  # loaded now, because loading waits for the device
                self._fill[fill] = own_kernel(fill, self._device)
            self._stream.synchronize()

        def begin(seed: int) -> bool:
            """Enqueue all kernels. Return whether the device still waits for the seed."""
            self._stored[0] = seed
            cycles = ctypes.c_longlong(int(MAX_WAIT_US * self._stream.nominal_mhz))
            stored = ctypes.c_void_p(self._memory.ptr)
            bind_own(self._wait, (1,), 1, stored, self._seed, cycles)()
            begun = self._stream.record_start()
            bits = ctypes.c_int(len(values).bit_length() - 1)
            chosen = memory, ctypes.c_longlong(memory.size), values, bits, self._seed
            blocks = min(-(-memory.size // THREADS), MAX_BLOCKS)
            bind_own(self._fill[fill], (blocks,), THREADS, *chosen)()
            enqueue()
            return not begun.done

        def release(seed: int) -> None:
            with faults():
                if in_queue:
                    self._stored[0] = seed
                else:
                    begin(seed)
                self._stream.synchronize()

        with faults():
            is_held = in_queue and begin(0)
        if in_queue and not is_held:
            release(1)
            return None
        return release
