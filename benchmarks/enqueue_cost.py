"""Measure what the host pays to enqueue a launch, by each route from Python to the driver.

    python benchmarks/enqueue_cost.py

Enqueues a small kernel with three pointers and three ints, as a product has them, behind a
blocking kernel, as gpubench's timer does: by CuPy's private `launchKernel` with arguments packed
ahead (gpubench's launches without attributes), by `cuLaunchKernel` and `cuLaunchKernelEx` of
cuda-bindings (the latter for launches with attributes), and by `cuda.core.launch` where it is
installed. The routes alternate, so that a drift of the host's clock meets all of them. The kernel
counts its launches: a route that loses one makes the exit status 1.
"""

from __future__ import annotations

import ctypes
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import cupy
import numpy as np
from cuda.bindings import driver

from gpubench.backends.cuda.backend import CudaBackend
from gpubench.backends.cuda.compile import Compiled, compile_instance
from gpubench.backends.cuda.driver import launch_config
from gpubench.backends.cuda.launching import bind_launch, load_function
from gpubench.model import Launch

SOURCE = """
__global__ void count(const float* A, const float* B, int* C, int M, int N, int K) {
  if (blockIdx.x == 0 && threadIdx.x == 0) atomicAdd(C, 1);
}
"""
LAUNCHES, SAMPLES, WARM_UP_SAMPLES = 200, 200, 5
BLOCK_US = 20.0 * LAUNCHES
"""The stream stays blocked while a sample is enqueued, unless a launch costs more than 20 µs."""

PLAIN = Launch(grid=(2,), block=(32,))
PDL = Launch(grid=(2,), block=(32,), pdl=True)
CLUSTER = Launch(grid=(2,), block=(32,), cluster=(2, 1, 1))

ATTRIBUTES_FROM = (9, 0)
"""Compute capability."""

Enqueue = Callable[[], object]


def main() -> int:
    backend = CudaBackend(0)
    backend.warm_up()
    capability = backend.device.compute_capability or (0, 0)
    with tempfile.TemporaryDirectory() as directory:
        source = Path(directory) / "count.cu"
        source.write_text(SOURCE)
        compiled = compile_instance(source, "count", "sm_{}{}".format(*capability))
    counter = cupy.zeros(1, np.int32)
    found = routes(compiled, counter.data.ptr, has_attributes=capability >= ATTRIBUTES_FROM)
    times: dict[str, list[float]] = {name: [] for name in found}
    for sample in range(WARM_UP_SAMPLES + SAMPLES):
        for name, enqueue in found.items():
            backend.stream.synchronize()
            backend.stream.block(BLOCK_US)
            start_ns = time.perf_counter_ns()
            for _ in range(LAUNCHES):
                enqueue()
            if sample >= WARM_UP_SAMPLES:
                times[name].append((time.perf_counter_ns() - start_ns) / 1e3 / LAUNCHES)
    backend.stream.synchronize()
    print(f"{backend.device.name}, {backend.device.versions}")
    print(f"µs per enqueue: median, quartiles of {SAMPLES} samples of {LAUNCHES} launches")
    for name, times_us in times.items():
        first, _, third = statistics.quantiles(times_us, n=4)
        print(f"{statistics.median(times_us):7.3f}  {first:7.3f} to {third:7.3f}  {name}")
    wanted = len(found) * (WARM_UP_SAMPLES + SAMPLES) * LAUNCHES
    counted = int(counter[0])
    print(f"{counted:,} of {wanted:,} launches ran")
    return int(counted != wanted)


def routes(compiled: Compiled, counter: int, *, has_attributes: bool) -> dict[str, Enqueue]:
    """Each route by name, bound to the kernel and its arguments."""
    function = load_function(compiled)
    arguments = (*(ctypes.c_void_p(counter) for _ in range(3)), *(ctypes.c_int(1),) * 3)
    found: dict[str, Enqueue] = {
        "CuPy's launchKernel, arguments packed (gpubench)": bind_launch(function, PLAIN, arguments),
        "cuda-bindings cuLaunchKernel, arguments packed": by_launch_kernel(function.ptr, arguments),
        "cuda-bindings cuLaunchKernelEx, no attributes": by_launch_kernel_ex(
            function.ptr, arguments
        ),
    }
    if has_attributes:
        for name, launch in (("programmatic dependent launch", PDL), ("a cluster", CLUSTER)):
            found[f"cuda-bindings cuLaunchKernelEx, {name} (gpubench)"] = bind_launch(
                function, launch, arguments
            )
    try:
        found["cuda.core launch"] = by_cuda_core(compiled, counter)
    except Exception as error:  # not installed, or of another version: the rest is still measured
        print(f"cuda.core is not measured: {type(error).__name__}: {error}")
    return found


def packed(arguments: tuple[object, ...]) -> ctypes.Array[ctypes.c_void_p]:
    """The addresses of the arguments, as the driver wants them."""
    return (ctypes.c_void_p * len(arguments))(*map(ctypes.addressof, arguments))  # type: ignore[arg-type]


def by_launch_kernel(function: int, arguments: tuple[object, ...]) -> Enqueue:
    pointers = packed(arguments)
    stream = driver.CUstream(cupy.cuda.get_current_stream().ptr)
    fixed = (
        driver.CUfunction(function),
        *PLAIN.dimensions,
        0,
        stream,
        ctypes.addressof(pointers),
        0,
    )

    def enqueue(_alive: object = (arguments, pointers)) -> None:
        (status,) = driver.cuLaunchKernel(*fixed)
        if status:
            raise RuntimeError(status.name)

    return enqueue


def by_launch_kernel_ex(function: int, arguments: tuple[object, ...]) -> Enqueue:
    pointers = packed(arguments)
    config = launch_config(PLAIN, cupy.cuda.get_current_stream().ptr)
    fixed = (config, driver.CUfunction(function), ctypes.addressof(pointers), 0)

    def enqueue(_alive: object = (arguments, pointers)) -> None:
        (status,) = driver.cuLaunchKernelEx(*fixed)
        if status:
            raise RuntimeError(status.name)

    return enqueue


def by_cuda_core(compiled: Compiled, counter: int) -> Enqueue:
    from cuda.core import LEGACY_DEFAULT_STREAM, Device, LaunchConfig, ObjectCode, launch

    Device(0).set_current()
    kernel = ObjectCode.from_cubin(compiled.cubin).get_kernel(compiled.symbol)
    config = LaunchConfig(grid=PLAIN.grid, block=PLAIN.block)
    values = (counter, counter, counter, *(np.int32(1),) * 3)

    def enqueue(_alive: object = compiled) -> None:
        launch(LEGACY_DEFAULT_STREAM, config, kernel, *values)

    return enqueue


if __name__ == "__main__":
    sys.exit(main())
