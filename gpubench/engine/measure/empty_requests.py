"""Answers requests without launches, in a process that never runs a user's function.

The time of empty requests is subtracted from the time of launches on new operands
(`engine.outside.on_new_operands`).
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from gpubench.backends import Backend
from gpubench.backends.arrays import NEW_VALUES
from gpubench.backends.rotation import set_size
from gpubench.errors import first_line
from gpubench.model import Problem


class EmptyRequests:
    """Fills operands as a request with launches does, but launches nothing."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._operands: Any = None
        self._release: Callable[[int], None] | None = None

    def make_room(self, problem: Problem, launches: int, position: int) -> str:
        """Allocate operands for a number of launches. Return an empty text, or why this failed."""
        shape, kind = problem.input_shapes[position], np.dtype(problem.types[position])
        size = set_size(shape, kind.itemsize)
        self._release = self._operands = None
        try:
            self._operands = self._backend.xp.zeros((launches, size), f"u{kind.itemsize}")
        except MemoryError as error:
            return first_line(error)
        return ""

    def put_new_operands(self, count: int, in_queue: bool) -> None:
        """Prepare to fill operands, as `Examiner.put_new_operands` prepares launches."""
        memory = self._operands[:count].ravel()
        values = self._backend.xp.zeros(NEW_VALUES, memory.dtype)
        self._release = self._backend.hold(memory, values, None, 0, in_queue=in_queue)

    def launch_on_new_operands(self, seed: int) -> None:
        """Fill the operands from a seed, as `Examiner.launch_on_new_operands` does, and wait."""
        if self._release:
            self._release(seed)
