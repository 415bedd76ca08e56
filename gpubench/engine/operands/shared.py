"""Where the arrays of several launches lie in memory that two processes share."""

from itertools import accumulate
from typing import Any

import ml_dtypes  # noqa: F401 # names for NumPy: bfloat16 and float8
import numpy as np
from numpy.typing import NDArray

from gpubench.backends.rotation import in_sets, set_size
from gpubench.model import OPERATIONS, Problem


def stated_in(problem: Problem) -> list[str]:
    """Return the file that states a user's operation; nothing for ours."""
    is_ours = OPERATIONS.is_ours(problem.op)
    return [] if is_ours else [str(OPERATIONS.files[problem.op])]


def shared_bytes(problem: Problem, launches: int) -> tuple[int, int]:
    """Return the bytes of the operands of a number of launches, and of their results."""
    *inputs, output = (
        launches * set_size(shape, kind.itemsize) * kind.itemsize
        for shape, kind in zip(problem.shapes, map(np.dtype, problem.types), strict=True)
    )
    return sum(inputs), output


def shared_sets(
    problem: Problem, launches: int, inputs: NDArray[np.uint8], outputs: NDArray[np.uint8]
) -> tuple[tuple[Any, ...], ...]:
    """Return the arrays of each launch, operands and result, in memory of `shared_bytes`."""
    stacks, memory = [], np.split(inputs, _starts(problem, launches))
    for block, shape, kind, by_columns in zip(
        [*memory, outputs], problem.shapes, problem.types, problem.by_columns, strict=True
    ):
        stacks.append(in_sets(block.view(kind).reshape(launches, -1), shape, by_columns))
    return tuple(zip(*stacks, strict=True))


def _starts(problem: Problem, launches: int) -> list[int]:
    """Return where each operand but the first begins, in bytes."""
    sizes = [
        launches * set_size(shape, kind.itemsize) * kind.itemsize
        for shape, kind in zip(problem.input_shapes, map(np.dtype, problem.types), strict=False)
    ]
    return list(accumulate(sizes))[:-1]
