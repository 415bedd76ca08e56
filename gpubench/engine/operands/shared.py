"""Places the arrays of several launches in memory that two processes share."""

from typing import Any

import ml_dtypes  # noqa: F401 # names for NumPy: bfloat16 and float8
import numpy as np
from numpy.typing import NDArray

from gpubench.backends.rotation import bytes_of_sets, in_sets
from gpubench.model import Problem


def shared_bytes(problem: Problem, launches: int) -> tuple[int, int]:
    """Return how many bytes the launches' operands need, and how many bytes their results need."""
    *inputs, output = bytes_of_sets(problem, launches)
    return sum(inputs), output


def shared_sets(
    problem: Problem, launches: int, inputs: NDArray[np.uint8], outputs: NDArray[np.uint8]
) -> tuple[tuple[Any, ...], ...]:
    """Return the operands and the result of each launch, as views of `inputs` and `outputs`.

    `shared_bytes` returns how many bytes `inputs` and `outputs` must have.
    """
    ends = np.cumsum(bytes_of_sets(problem, launches)[:-1])
    stacks, memory = [], np.split(inputs, ends[:-1])
    for block, shape, kind, by_columns in zip(
        [*memory, outputs], problem.shapes, problem.types, problem.by_columns, strict=True
    ):
        stacks.append(in_sets(block.view(kind).reshape(launches, -1), shape, by_columns))
    return tuple(zip(*stacks, strict=True))
