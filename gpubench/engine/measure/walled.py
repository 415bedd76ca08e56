"""Launches kernels in the child, on operands that the parent sends with each request.

The parent owns the outputs, makes the operands, and times the requests (`engine.outside.wall`).
"""

import os
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from gpubench.backends import Backend, Kernel
from gpubench.backends.rotation import OperandSets, Rotation, SetPolicy
from gpubench.engine.measure.examiner import or_lost
from gpubench.engine.operands.shared import shared_bytes, shared_sets
from gpubench.errors import ChildLostError
from gpubench.model import Point, Problem
from gpubench.process.descendants import drop_capabilities
from gpubench.process.shared_memory import Window


class Walled:
    """Holds operands and outputs at fixed addresses, and a kernel that is bound to this memory."""

    def __init__(self, backend: Backend, take_file: Callable[[], int]) -> None:
        self._backend, self._take_file = backend, take_file
        self._windows: tuple[Window, Window] | None = None
        self._operands: OperandSets | None = None
        self._kernel: Kernel | None = None
        self._fixed: OperandSets | None = None
        """Copies of the operands, for a kernel that keeps the addresses of its first launches."""

    def give_up_rights(self) -> None:
        """Give up the privileges of root before a user's function is loaded."""
        drop_capabilities()

    def prepare(self, problem: Problem, launches: int) -> None:
        """Reserve memory for operands, and map the outputs' file, which the parent sends."""
        self.forget()
        inputs, outputs = (Window(size) for size in shared_bytes(problem, launches))
        self._windows = inputs, outputs
        self._map(outputs, writable=True)
        self._operands = OperandSets(
            problem=problem,
            host_inputs=(),
            sets=shared_sets(problem, launches, inputs.bytes, outputs.bytes),
            rotation=Rotation(launches),
            policy=SetPolicy(count=launches, flush=False),
        )

    def bind(self, point: Point, threads: int | None) -> None:
        """Bind the point's kernel to this memory. Raises ChildLostError."""
        if self._operands is None:
            raise ChildLostError("has no memory for its operands")
        operands, self._fixed = self._operands, None
        if point.variant.fixed_addresses:
            sets = tuple(tuple(np.empty_like(x) for x in arrays) for arrays in operands.sets)
            operands = self._fixed = replace(operands, sets=sets)
        with or_lost():
            kernel = self._backend.bind(point, operands)
        self._kernel = kernel if threads is None else kernel.on_threads(threads)

    def launch(self, launches: int) -> float:
        """Map the operands that the parent sent, and launch on each set of operands.

        Return microseconds per launch by the clock of this process. If `launches` is 0, only map
        the operands. Raises ChildLostError.
        """
        if self._windows is None:
            raise ChildLostError("has no memory for its operands")
        self._map(self._windows[0])
        if not launches or self._kernel is None:
            return 0.0
        own = self._operands.sets[0] if self._operands else ()
        fixed = self._fixed.sets[0] if self._fixed else ()
        for to, array in zip(fixed, own, strict=False):
            to[...] = array
        with or_lost():
            launch_us = self._kernel.run(launches) or 0.0
        if fixed:
            own[-1][...] = fixed[-1]
        return launch_us

    def release(self) -> None:
        """Unmap the operands."""
        if self._windows:
            self._windows[0].clear()

    def forget(self) -> None:
        """Unmap the operands and the outputs, and drop the kernel."""
        self._kernel = self._operands = self._fixed = None
        for window in self._windows or ():
            window.close()
        self._windows = None

    def _map(self, window: Window, *, writable: bool = False) -> None:
        descriptor = self._take_file()
        try:
            window.map(descriptor, writable=writable)
        finally:
            os.close(descriptor)
