"""Compiles and loads the instances of templates, and binds their launches to arrays."""

import ctypes
import math
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import cupy
from cuda.bindings import driver
from cupy_backends.cuda.api import driver as cupy_driver

from gpubench.backends import Routine
from gpubench.backends.cuda.compile import Compiled, compile_instance
from gpubench.backends.cuda.driver import kernel_arguments, launch_config
from gpubench.backends.cuda.host_function import HostFunction
from gpubench.backends.cuda.nvcc import compile_library
from gpubench.backends.functions import Prepared, as_tensors, writing
from gpubench.errors import (
    CompileError,
    DoesNotFitError,
    LaunchError,
    first_line,
    lacks_memory,
    missing_module,
)
from gpubench.hardware.host import cpu_threads
from gpubench.model import (
    CallVariant,
    Config,
    CudaVariant,
    Device,
    Gpu,
    HostVariant,
    Launch,
    Point,
    Problem,
    Resources,
    Variant,
)
from gpubench.model.variant import PORTABLE_CLUSTER
from gpubench.results.provenance import hash_of

MAX_REGISTERS = 65_536  # registers of a block, on each GPU since compute capability 7.0
REGISTER_STEP = 8  # the registers of a thread are allocated in multiples of this number

Key = tuple[Path, str, str, tuple[str, ...]]
"""Key of an instance: source, expression, architecture and compile options."""


@dataclass(frozen=True, kw_only=True)
class CudaRoutine(Routine):
    """A kernel or library routine, not yet bound to arrays."""

    bind: Callable[[Sequence[Any]], Callable[[], None]]
    """Function that takes the inputs, the output, and the workspace if there is one. It returns a
    function that launches on these arrays."""

    @property
    def workspace_bytes(self) -> int:
        """Number of bytes of the workspace, which is the last array. 0 without a workspace."""
        return self.launch.workspace_bytes if self.launch else 0


class Instances:
    """Template instances for one GPU. An instance is compiled once, and loaded when it is bound."""

    def __init__(self, device: Device) -> None:
        self._architecture = device.architecture
        self._gpu = Gpu(
            multiprocessors=device.multiprocessors,
            threads_per_multiprocessor=device.facts["threads_per_multiprocessor"],
        )
        self._compiled: dict[Key, Compiled | str] = {}
        # Code takes memory on the device, and loading a kernel takes two milliseconds.
        self._function = lru_cache(256)(load_function)
        self._calls: dict[tuple[Variant, Config | None, str], Callable[..., None]] = {}

    def compile(self, points: Sequence[Point], on_built: Callable[[int], None]) -> None:
        """Compile the points' kernels in one thread per CPU. NVRTC releases Python's lock."""
        keys = {
            self._key(point, launch): None
            for point in points
            if isinstance(point.variant, CudaVariant)
            for launch in self._launch(point, point.problem).sequence
        }
        host = {
            (point.variant, point.tile, point.problem.dtype): None
            for point in points
            if isinstance(point.variant, HostVariant)
        }
        with ThreadPoolExecutor(cpu_threads()) as pool:
            # The largest tiles take longest to compile and tend to come last, so they start first.
            builds: list[Future[Any]] = [pool.submit(self._build, key) for key in reversed(keys)]
            builds += [pool.submit(compile_library, *key, self._architecture) for key in host]
            try:
                for count, _ in enumerate(as_completed(builds), 1):
                    on_built(count)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def routine(self, point: Point, problem: Problem) -> CudaRoutine:
        """Return the point's kernel with the launches for a problem, or the point's library call.

        Raises CompileError if the kernel does not compile.
        """
        if isinstance(point.variant, CallVariant):
            call = self._call(point)
            if isinstance(call, HostFunction):

                def bind_call(arrays: Sequence[Any]) -> Callable[[], None]:
                    launch = call.bind(problem, [array.data.ptr for array in arrays])
                    return partial(run_all, [launch], arrays)

                return CudaRoutine(bind=bind_call, call=call, code_hash=call.code_hash)
            return replace(
                call_routine(writing(call, point.variant), point.variant.tensors), call=call
            )
        main = self._launch(point, problem)
        launches = main.sequence
        if not point.launches.overlap:  # kernels inside a launch may still overlap
            launches = (replace(main, pdl=False), *launches[1:])
        loaded = [self._load(self._key(point, launch)) for launch in launches]
        functions = [function for _, function in loaded]
        for launch, (compiled, function) in zip(launches, loaded, strict=True):
            require_registers(launch, compiled.resources)
            allow(function, launch)
        variant, _ = _cuda_parts(point)
        workspace = main.workspace_bytes > 0
        arguments_on = [
            kernel_arguments(variant.parameters(launch, workspace=workspace), problem, launch)
            for launch in launches
        ]

        def bind(arrays: Sequence[Any]) -> Callable[[], None]:
            addresses = [array.data.ptr for array in arrays]
            bound = [
                bind_launch(function, launch, arguments(addresses), keep_alive=arrays)
                for function, launch, arguments in zip(
                    functions, launches, arguments_on, strict=True
                )
            ]
            return bound[0] if len(bound) == 1 else partial(run_all, bound)

        compiled, _ = loaded[main.sequence.index(main.main)]
        return CudaRoutine(
            bind=bind,
            compiled=compiled.resources,
            note=compiled.note,
            code_hash=hash_of(*(each.cubin for each, _ in loaded)),
            launch=main,
        )

    def _call(self, point: Point) -> Callable[..., None]:
        """Return the variant's function.

        The function is built once and kept, because it may compile code for each new size.
        """
        variant, dtype = point.variant, point.problem.dtype
        key = variant, point.tile, dtype
        if key not in self._calls and isinstance(variant, CallVariant):
            try:
                if isinstance(variant, HostVariant):
                    stream = cupy.cuda.get_current_stream().ptr
                    self._calls[key] = HostFunction(
                        variant, point.tile, dtype, self._architecture, stream
                    )
                else:
                    self._calls[key] = variant.build(point.tile, dtype)
            except (CompileError, DoesNotFitError):
                raise
            except ModuleNotFoundError as error:
                raise missing_module(error) from error
            except Exception as error:  # a descriptor may raise anything
                if lacks_memory(error):
                    raise DoesNotFitError(f"out of memory: {first_line(error)}") from error
                raise CompileError(f"cannot be built: {first_line(error)}") from error
        return self._calls[key]

    def _launch(self, point: Point, problem: Problem) -> Launch:
        variant, tile = _cuda_parts(point)
        return variant.launch_on(self._gpu, tile, problem)

    def _key(self, point: Point, launch: Launch) -> Key:
        variant, tile = _cuda_parts(point)
        return variant.compilation(tile, point.problem.dtype, self._architecture, launch.kernel)

    def _build(self, key: Key) -> Compiled | str:
        """Return a compiled instance, or why it does not compile."""
        if key not in self._compiled:
            try:
                self._compiled[key] = compile_instance(*key)
            except CompileError as error:
                self._compiled[key] = str(error)
        return self._compiled[key]

    def _load(self, key: Key) -> tuple[Compiled, Any]:
        """Return a compiled instance and its function on the device."""
        compiled = self._build(key)
        if isinstance(compiled, str):
            raise CompileError(compiled)
        return compiled, self._function(compiled)


def call_routine(call: Callable[..., None], tensors: str = "", chosen: str = "") -> CudaRoutine:
    """Return the routine of a function that takes inputs and output, as arrays or as tensors."""
    prepare = call.bind if isinstance(call, Prepared) else partial(partial, call)
    return CudaRoutine(
        bind=lambda arrays: prepare(*as_tensors(tensors, arrays)), call=call, chosen=chosen
    )


def load_function(compiled: Compiled) -> Any:
    """Load a cubin's kernel on the current device."""
    module = cupy.cuda.Module()
    module.load(compiled.cubin)
    return module.get_function(compiled.symbol)


def require_registers(launch: Launch, resources: Resources) -> None:
    """Raise LaunchError if a block needs more registers than a GPU has for a block.

    The driver would only report that resources are missing.
    """
    threads = launch.threads_per_block
    allocated = -(-resources.registers // REGISTER_STEP) * REGISTER_STEP
    if threads * allocated > MAX_REGISTERS:
        raise LaunchError(
            f"a block of {threads:,} threads with {resources.registers} registers each needs "
            f"{threads * allocated:,} registers, and a block may have {MAX_REGISTERS:,}: use fewer "
            f"threads, or write __launch_bounds__({threads}) before the kernel's name"
        )


def allow(function: Any, launch: Launch) -> None:
    """Allow a function to use the dynamic shared memory and the cluster of a launch.

    By default, a function may use 48 KiB of static and dynamic shared memory together, and clusters
    of up to 8 blocks (CUDA C++ Programming Guide).
    """
    attributes = driver.CUfunction_attribute
    needed = {
        attributes.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: launch.shared_bytes,
        attributes.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED: int(
            math.prod(launch.cluster) > PORTABLE_CLUSTER
        ),
    }
    for attribute, value in needed.items():
        if value:
            (status,) = driver.cuFuncSetAttribute(driver.CUfunction(function.ptr), attribute, value)
            if status:
                raise LaunchError(
                    f"cuFuncSetAttribute cannot set {attribute.name} to {value:,}: {status.name}"
                )


def bind_launch(
    function: Any, launch: Launch, arguments: Sequence[Any], keep_alive: object = None
) -> Callable[[], None]:
    """Return a fast function that enqueues a launch in the current stream.

    `arguments` are the kernel's arguments as ctypes objects. These objects contain only the
    addresses of arrays. So the function keeps a reference to `keep_alive`, which keeps the arrays
    from being freed.

    Launches with attributes are enqueued by cuLaunchKernelEx, and all other launches by CuPy's
    function. docs/decisions/0004 has the time of both functions.
    """
    pointers = (ctypes.c_void_p * len(arguments))(*map(ctypes.addressof, arguments))
    stream = cupy.cuda.get_current_stream().ptr
    address = ctypes.addressof(pointers)
    alive = (function, arguments, pointers, keep_alive)
    if launch.pdl or launch.cluster != (1, 1, 1):
        with_config = (launch_config(launch, stream), driver.CUfunction(function.ptr), address, 0)
        enqueue_ex = driver.cuLaunchKernelEx

        def run(_alive: object = alive) -> None:
            (status,) = enqueue_ex(*with_config)
            if status:
                raise LaunchError(f"cuLaunchKernelEx: {status.name}")

        return run
    fixed = (function.ptr, *launch.dimensions, launch.shared_bytes, stream, address, 0)
    enqueue = cupy_driver.launchKernel

    def run_fast(_alive: object = alive) -> None:
        enqueue(*fixed)

    return run_fast


def bind_own(
    function: Any, grid: tuple[int, ...], threads: int, *arguments: Any
) -> Callable[[], None]:
    """Return a function that launches a kernel of gpubench on CuPy arrays (`bind_launch`)."""
    values = [
        ctypes.c_void_p(each.data.ptr) if isinstance(each, cupy.ndarray) else each
        for each in arguments
    ]
    return bind_launch(function, Launch(grid=grid, block=(threads,)), values, keep_alive=arguments)


def run_all(launches: Sequence[Callable[[], None]], _alive: object = None) -> None:
    """Enqueue launches in order. `_alive` keeps their arrays from being freed."""
    for launch in launches:
        launch()


def _cuda_parts(point: Point) -> tuple[CudaVariant, Config]:
    """Return the point's variant and tile. A CUDA variant always has a tile, which may be empty."""
    if not isinstance(point.variant, CudaVariant) or point.tile is None:
        raise TypeError(f"{point.label} is not a CUDA source with a tile")
    return point.variant, point.tile
