"""The operations: what is computed, from operands of which shapes. Standard library only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Shape = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Operation:
    """A matrix operation: its operands' shapes and its work.

    Shapes and work are functions of M, N and K. `flops` counts a multiply-add as two.
    """

    name: str
    inputs: Callable[[int, int, int], tuple[Shape, ...]]
    output: Callable[[int, int, int], Shape]
    flops: Callable[[int, int, int], int]
    extents: int = 3
    """How many of M, N and K there are; a missing K is 1."""


OPERATIONS = {
    operation.name: operation
    for operation in (
        Operation(
            name="gemm",
            inputs=lambda m, n, k: ((m, k), (k, n)),
            output=lambda m, n, _k: (m, n),
            flops=lambda m, n, k: 2 * m * n * k,
        ),
    )
}
