"""Functions on the device, and launches with their arguments packed ahead."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import cupy
from cuda.bindings import driver as bindings
from cupy_backends.cuda.api import driver

from gpubench.backends.cuda.compile import Compiled
from gpubench.errors import LaunchError
from gpubench.model import Launch


def load_function(compiled: Compiled) -> Any:
    """A cubin's kernel, loaded on the current device."""
    module = cupy.cuda.Module()
    module.load(compiled.cubin)
    return module.get_function(compiled.symbol)


def allow_shared_memory(function: Any, launch: Launch) -> None:
    """Let a function have the dynamic shared memory of a launch.

    Unasked it gets what 48 KiB leave beside its static arrays (CUDA C++ Programming Guide).
    """
    if launch.shared_bytes:
        driver.funcSetAttribute(
            function.ptr,
            driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
            launch.shared_bytes,
        )


def bind_launch(
    function: Any, launch: Launch, values: Sequence[Any], held: object = None
) -> Callable[[], None]:
    """A launch in the current stream with everything packed ahead, so that it enqueues quickly.

    `values` are the kernel's arguments as ctypes objects. `held` lives as long as the launch: it
    knows addresses alone, and memory that nobody holds is handed out again.
    """
    pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
    if launch.pdl:
        return _bind_pdl(function, launch, pointers, (values, held))
    stream = cupy.cuda.get_current_stream().ptr
    arguments = ctypes.addressof(pointers)
    fixed = (function.ptr, *launch.dimensions, launch.shared_bytes, stream, arguments, 0)
    enqueue = driver.launchKernel

    def run(_alive: object = (function, values, pointers, held)) -> None:
        enqueue(*fixed)

    return run


def _bind_pdl(
    function: Any, launch: Launch, pointers: ctypes.Array[ctypes.c_void_p], held: object
) -> Callable[[], None]:
    """Likewise, a launch that may begin while the one before it in the stream still runs.

    By cuda-bindings, as CuPy's launch takes no attributes.
    """
    attribute = bindings.CUlaunchAttribute()
    attribute.id = (
        bindings.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    )
    attribute.value.programmaticStreamSerializationAllowed = 1
    config = bindings.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = launch.dimensions[:3]
    config.blockDimX, config.blockDimY, config.blockDimZ = launch.dimensions[3:]
    config.sharedMemBytes = launch.shared_bytes
    config.hStream = bindings.CUstream(cupy.cuda.get_current_stream().ptr)
    config.attrs, config.numAttrs = [attribute], 1
    fixed = (config, bindings.CUfunction(function.ptr), ctypes.addressof(pointers), 0)
    enqueue = bindings.cuLaunchKernelEx

    def run(_alive: object = (function, pointers, held)) -> None:
        (status,) = enqueue(*fixed)
        if status:
            raise LaunchError(f"cuLaunchKernelEx: {status.name}")

    return run
