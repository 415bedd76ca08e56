"""Measures a GPU's rates and fixed work, and reads its sensors."""

import ctypes
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import cupy
import numpy as np
from cupy.cuda import runtime

from gpubench.backends.cuda.compile import compile_instance
from gpubench.backends.cuda.empty_launch import empty_launch_us
from gpubench.backends.cuda.kernel import CudaTimers, faults
from gpubench.backends.cuda.launching import bind_own, load_function
from gpubench.backends.cuda.nvml import Nvml
from gpubench.backends.cuda.stream import own_kernel
from gpubench.hardware.peaks import fma_rate
from gpubench.model import CORE_DTYPES, PRECISIONS, Device, Health

TENSOR_THREADS = 256
TENSOR_STEPS = 4000

WARPGROUP_STEP_BYTES = 2 * 64 * 256 * 128
"""Number of operations that a warpgroup makes per step of `tensor_peak` if operands have 1 byte."""

WARP_STEP = 8 * 2 * 16 * 8 * 16  # number of operations of a warp in a step of `tensor_peak`

TENSOR_DTYPES = ("float16", "bfloat16", "tf32", "float64", "int8", "float8_e4m3")
"""Precisions whose rates on tensor cores are measured on compute capability 9.0. On other GPUs,
only bfloat16 is measured."""

WARM_STEPS = 20_000  # iterations of the multiply-add kernel in a burst: about 10 ms on a large GPU

SETTLED = 0.01  # the clock has settled when the rates of bursts differ by less than this fraction
SETTLED_BURSTS = 3  # number of consecutive bursts whose rates are compared

COPY_BYTES = 2**30
HOST_COPY_BYTES = 2**26
CHAIN_LOADS = 4096
LINE_BYTES = 128
REPEATS = 10


class CudaGauge:
    """Measures a GPU in its stream, and reads its sensors if NVML is available."""

    def __init__(self, device: Device, timers: CudaTimers, nvml: Nvml | None) -> None:
        self._device, self._stream = device, timers.stream
        self._multiply_add, self._chase, self._read = (
            own_kernel(name, device) for name in ("multiply_add", "pointer_chase", "read_bytes")
        )
        self._timers = timers
        self._nvml = nvml

    def ceilings(self, dtypes: Sequence[str] = CORE_DTYPES) -> dict[str, float]:
        """Measure the rates of memory. If there are `dtypes`, also measure rates of arithmetic."""
        with faults():
            self.warm_up()
            rates: dict[str, float | None] = {
                # Each byte is read and written.
                "measured_copy_gbytes_per_s": 2 * COPY_BYTES / self._copy_us() / 1e3,
                "measured_read_gbytes_per_s": self._read_gbytes_per_s(),
            }
            if dtypes:
                rates[fma_rate("float32")] = self._fma_gflops()
                rates |= {
                    f"measured_{dtype}_tensor_gflops": rate
                    for dtype, rate in self._tensor_rates().items()
                }
        return {name: rate for name, rate in rates.items() if rate}

    def parts(self) -> dict[str, float]:
        """Measure copies in device memory and over PCIe, and a chain of loads from memory."""
        with faults():
            return {
                "copy": self._copy_us(),
                "latency": self._latency_us(),
                "to device": self._host_copy_us(runtime.memcpyHostToDevice),
                "from device": self._host_copy_us(runtime.memcpyDeviceToHost),
            }

    def empty_launch_us(self) -> dict[str, float]:
        """Time a launch of an empty kernel by three clocks (`empty_launch`)."""
        with faults():
            return empty_launch_us(self._stream, self._timers.events, self._timers.cupti)

    def configuration(self) -> dict[str, Any]:
        """Return the driver's version, and the facts that NVML reports."""
        return {
            "driver": self._device.versions.get("driver"),
            **(self._nvml.configuration() if self._nvml else {}),
        }

    def health(self) -> Health:
        """Return NVML's readings, and what the timer measured since the last call."""
        events = self._timers.events
        clock_mhz = events.take_clock_mhz()
        health = self._nvml.health(clock_mhz) if self._nvml else Health(sm_mhz=clock_mhz)
        return replace(health, overhead_us=events.overhead_us, host_us=events.take_host_us())

    def warm_up(self) -> None:
        """Run multiply-adds until their rate is steady, so that the clock has settled."""
        rates = deque(
            (self._fma_gflops(repeats=1) for _ in range(SETTLED_BURSTS)), maxlen=SETTLED_BURSTS
        )
        for _ in range(100):
            if max(rates) - min(rates) < SETTLED * max(rates):
                return
            rates.append(self._fma_gflops(repeats=1))

    def _fma_gflops(self, repeats: int = REPEATS) -> float:
        """Return the median rate of float32 multiply-adds, each counted as two operations."""
        blocks, threads, chains = 16 * self._device.multiprocessors, 256, 16
        out = cupy.empty(blocks * threads, np.float32)
        factors = map(ctypes.c_float, (0.999, 0.001))
        steps = ctypes.c_int(WARM_STEPS)
        launch = bind_own(self._multiply_add, (blocks,), threads, out, *factors, steps)
        flops = 2 * blocks * threads * chains * WARM_STEPS
        return flops / self._stream.median_us(launch, repeats) / 1e3

    def _tensor_rates(self) -> dict[str, float]:
        """Return the median rates of products on tensor cores, by dtype.

        The dictionary is empty for a GPU without tensor cores, and for a GPU whose full rate needs
        instructions that `tensor_peak` does not use.
        """
        capability = self._device.compute_capability or (0, 0)
        hopper = capability == (9, 0)
        if not (hopper or capability[0] in {8, 12}):
            return {}
        dtypes = TENSOR_DTYPES if hopper else ("bfloat16",)
        return {dtype: self._tensor_gflops(dtype, hopper=hopper) for dtype in dtypes}

    def _tensor_gflops(self, dtype: str, *, hopper: bool) -> float:
        architecture = self._device.architecture + ("a" if hopper else "")
        precision = PRECISIONS[dtype]
        name = f"tensor_peak<{precision.cpp}>"
        source = Path(__file__).with_name("tensor_peak.cu")
        function = load_function(compile_instance(source, name, architecture))
        blocks = self._device.multiprocessors * (1 if hopper else 4)
        out = cupy.empty(blocks * TENSOR_THREADS, np.float32)
        launch = bind_own(function, (blocks,), TENSOR_THREADS, out, ctypes.c_int(TENSOR_STEPS))
        a_step = TENSOR_THREADS // 32 * WARP_STEP
        if hopper and dtype != "float64":
            a_step = TENSOR_THREADS // 128 * WARPGROUP_STEP_BYTES // precision.item_bytes
        return blocks * TENSOR_STEPS * a_step / self._stream.median_us(launch, REPEATS) / 1e3

    def _read_gbytes_per_s(self) -> float:
        """Return the median rate at which all multiprocessors together load `COPY_BYTES`."""
        source, out = cupy.zeros(COPY_BYTES, np.uint8), cupy.empty(1, np.uint32)
        blocks, words = 4 * self._device.multiprocessors, ctypes.c_int(COPY_BYTES // 16)
        read = bind_own(self._read, (blocks,), 512, source, words, out)
        read()
        return COPY_BYTES / self._stream.median_us(read, REPEATS) / 1e3

    def _copy_us(self) -> float:
        """Return the time of a copy of `COPY_BYTES` in device memory."""
        source, target = cupy.zeros(COPY_BYTES, np.uint8), cupy.empty(COPY_BYTES, np.uint8)
        pointers = target.data.ptr, source.data.ptr
        return self._timed_copy_us(*pointers, COPY_BYTES, runtime.memcpyDeviceToDevice)

    def _host_copy_us(self, kind: int) -> float:
        """Return the time of a copy of `HOST_COPY_BYTES` between device and pinned host memory."""
        host = cupy.cuda.alloc_pinned_memory(HOST_COPY_BYTES)
        on_device = cupy.zeros(HOST_COPY_BYTES, np.uint8)
        pointers = on_device.data.ptr, host.ptr
        if kind == runtime.memcpyDeviceToHost:
            pointers = host.ptr, on_device.data.ptr
        return self._timed_copy_us(*pointers, HOST_COPY_BYTES, kind)

    def _latency_us(self) -> float:
        """Return the time of a chain of `CHAIN_LOADS` dependent loads from device memory.

        The loads access an array of twice the last-level cache's size in random order, so that each
        load goes to memory.
        """
        lines = 2 * self._device.l2_bytes // LINE_BYTES
        order = np.random.default_rng(0).permutation(lines)
        words = LINE_BYTES // 4
        chain = np.zeros((lines, words), np.uint32)
        chain[order, 0] = np.roll(order, -1) * words
        following, out = cupy.asarray(chain), cupy.empty(1, np.uint32)
        chase = bind_own(self._chase, (1,), 1, following, ctypes.c_int(CHAIN_LOADS), out)
        chase()
        return self._stream.median_us(chase, REPEATS)

    def _timed_copy_us(self, target: int, source: int, size: int, kind: int) -> float:
        def copy() -> None:
            runtime.memcpyAsync(target, source, size, kind, self._stream.pointer)

        copy()
        return self._stream.median_us(copy, REPEATS)
