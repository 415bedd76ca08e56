"""Keeps the outputs of a GPU's launches, in a process that never runs a user's function.

The process that runs the function opens the memory of the outputs, and its launches write into this
memory. The parent reads results through the keeper's process.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from gpubench.backends import Backend
from gpubench.backends.arrays import on_host
from gpubench.backends.rotation import in_sets, set_size
from gpubench.engine.operands.shared import shared_bytes
from gpubench.errors import ChildLostError, LaunchError, first_line
from gpubench.model import Problem


def outputs_in(memory: Any, problem: Problem, kind: Any) -> Any:
    """Return the outputs that `memory` holds, one after the other, as arrays of type `kind`."""
    lines = memory.view(kind).reshape(-1, set_size(problem.output_shape, np.dtype(kind).itemsize))
    return in_sets(lines, problem.output_shape, problem.by_columns[-1])


def read_lines(outputs: Any, launches: Sequence[int], lines: Sequence[int], position: int) -> bytes:
    """Return, as bytes, a row of each launch's output, or a column if `position` is 1.

    `lines` has the index of the row or column for each launch. If `lines` is empty, return the
    whole output of the first launch.
    """
    bits = outputs.view(f"u{outputs.dtype.itemsize}")  # CuPy indexes only arrays of its own types
    bits = bits.swapaxes(1, -1) if position else bits
    chosen = bits[list(launches), list(lines)] if lines else bits[launches[0]]
    return np.ascontiguousarray(on_host(chosen)).tobytes()


def read_elements(outputs: Any, launch: int, positions: Sequence[int]) -> bytes:
    """Return elements of a launch's output by their positions, which are counted row by row."""
    bits = outputs.view(f"u{outputs.dtype.itemsize}")[launch]
    return np.ascontiguousarray(on_host(bits[np.unravel_index(positions, bits.shape)])).tobytes()


class Keeper:
    """Keeps the outputs of one point at a time."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._exported: tuple[bytes, Any] = b"", np.empty(0, np.uint8)
        self._problem: Problem | None = None

    def keep(self, problem: Problem, launches: int) -> tuple[bytes, str]:
        """Allocate memory for the outputs of a number of launches.

        Return the handle of the memory, and an empty text. If no other process can open the memory,
        return an empty handle and the reason.
        """
        self._problem, needed = problem, shared_bytes(problem, launches)[1]
        if needed > self._exported[1].size:  # at least twice the memory, which is never freed
            if self._backend.ipc is None:
                raise ChildLostError("has no memory that another process can open")
            try:
                self._exported = self._backend.ipc.export(1 << (needed - 1).bit_length())
            except LaunchError as error:
                return b"", first_line(error)
        return self._exported[0], ""

    def read_results(self, copies: Sequence[int], rows: Sequence[int], position: int) -> bytes:
        """Return the rows or columns that the parent has chosen from the outputs (`read_lines`)."""
        return read_lines(self._outputs, copies, rows, position)

    def read_elements(self, copy: int, positions: Sequence[int]) -> bytes:
        """Return the elements that the parent has chosen from an output (`read_elements`)."""
        return read_elements(self._outputs, copy, positions)

    @property
    def _outputs(self) -> Any:
        problem, memory = self._problem, self._exported[1]
        if problem is None:
            raise ChildLostError("keeps no outputs")
        of_one = shared_bytes(problem, 1)[1]
        bits = f"u{np.dtype(problem.types[-1]).itemsize}"
        return outputs_in(memory[: memory.size // of_one * of_one], problem, bits)
