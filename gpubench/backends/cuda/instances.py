"""Instances of the variants' templates on a GPU: compiled, loaded, bound to arrays."""

from __future__ import annotations

import ctypes
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from gpubench.backends.cpu import cpu_threads
from gpubench.backends.cuda.compile import Compiled, compile_instance, instance
from gpubench.backends.cuda.launching import allow_shared_memory, bind_launch, load_function
from gpubench.backends.cuda.tensor_map import encode
from gpubench.errors import CompileError
from gpubench.model import (
    CallVariant,
    CudaVariant,
    Device,
    Gpu,
    Launch,
    Point,
    Problem,
    Resources,
    Tile,
)

MAX_LOADED = 32
"""Kernels kept on the device: loading one takes less than a millisecond, and code takes memory."""

Key = tuple[Path, str]
"""A source, and the instance of one of its templates."""


@dataclass(frozen=True, kw_only=True)
class Routine:
    """A kernel or library routine that waits for its arrays."""

    bind: Callable[[Sequence[Any]], Callable[[], None]]
    """Inputs, output and workspace, if there is one, give a launch on them."""

    resources: Resources | None = None
    launch: Launch | None = None

    @property
    def workspace_bytes(self) -> int:
        """Device memory wanted as the last array; 0: none."""
        return self.launch.workspace_bytes if self.launch else 0


class Instances:
    """The instances that a GPU has been asked for."""

    def __init__(self, device: Device, architecture: str) -> None:
        self._architecture = architecture
        self._gpu = Gpu(
            multiprocessors=device.multiprocessors,
            threads_per_multiprocessor=device.facts["threads_per_multiprocessor"],
        )
        self._compiled: dict[Key, Compiled | str] = {}
        self._functions: OrderedDict[Key, Any] = OrderedDict()

    def compile(self, points: Sequence[Point], on_built: Callable[[int], None]) -> None:
        """Compile in as many threads as there are CPUs: NVRTC works outside Python's lock."""
        wanted = {
            _key(point, one): None
            for point in points
            if isinstance(point.variant, CudaVariant)
            for one in self._launch(point, point.problem).sequence
        }
        with ThreadPoolExecutor(cpu_threads()) as pool:
            # The slowest instances, those of the largest tiles, tend to stand last: start there.
            builds = [pool.submit(self._build, key) for key in reversed(wanted)]
            for count, _ in enumerate(as_completed(builds), 1):
                on_built(count)

    def routine(self, point: Point, problem: Problem) -> Routine:
        """The point's kernel with its launches for a problem, or its library call.

        Raises CompileError for a kernel that does not compile.
        """
        if isinstance(point.variant, CallVariant):
            call = point.variant.build(point.tile, problem.dtype)
            return Routine(bind=lambda arrays: partial(call, *arrays))
        launch = self._launch(point, problem)
        built = [self._function(_key(point, one)) for one in launch.sequence]
        for one, (_, function) in zip(launch.sequence, built, strict=True):
            allow_shared_memory(function, one)
        extents = (problem.m, problem.n, *((problem.k,) if problem.operation.has_k else ()))

        def bind(arrays: Sequence[Any]) -> Callable[[], None]:
            pointers = tuple(ctypes.c_void_p(array.data.ptr) for array in arrays)
            runs = []
            for one, (_, function) in zip(launch.sequence, built, strict=True):
                numbers = map(ctypes.c_int, (*extents, *one.int_arguments))
                maps = (
                    encode(wanted, arrays[wanted.array].data.ptr, problem.dtype)
                    for wanted in one.tensor_maps
                )
                values = (*pointers, *numbers, *maps)
                runs.append(bind_launch(function, one, values, held=arrays))
            return runs[0] if len(runs) == 1 else partial(_one_after_the_other, runs)

        main, _ = built[launch.sequence.index(launch.main)]
        return Routine(bind=bind, resources=main.resources, launch=launch)

    def _launch(self, point: Point, problem: Problem) -> Launch:
        variant, tile = _cuda_parts(point)
        return variant.launch_on(self._gpu, tile, problem)

    def _build(self, key: Key) -> Compiled | str:
        if key not in self._compiled:
            try:
                self._compiled[key] = compile_instance(*key, self._architecture)
            except CompileError as error:
                self._compiled[key] = str(error)
        return self._compiled[key]

    def _function(self, key: Key) -> tuple[Compiled, Any]:
        """A compiled instance and its function on the device."""
        compiled = self._build(key)
        if isinstance(compiled, str):
            raise CompileError(compiled)
        if key not in self._functions:
            self._functions[key] = load_function(compiled)
            if len(self._functions) > MAX_LOADED:
                self._functions.popitem(last=False)
        self._functions.move_to_end(key)
        return compiled, self._functions[key]


def _one_after_the_other(runs: Sequence[Callable[[], None]]) -> None:
    for run in runs:
        run()


def _key(point: Point, launch: Launch) -> Key:
    variant, tile = _cuda_parts(point)
    return variant.source, instance(variant, tile, point.problem.dtype, launch.kernel)


def _cuda_parts(point: Point) -> tuple[CudaVariant, Tile]:
    """The point's variant and tile, which a CUDA variant always has."""
    if not isinstance(point.variant, CudaVariant) or point.tile is None:
        raise TypeError(f"{point.label} is not a CUDA source with a tile")
    return point.variant, point.tile
