"""The loops of cpu_naive exchanged, one thread: rows of A, times elements of x, are added to y.

A is read along memory. y is read and written once per row, and stays in a cache.
"""

from collections.abc import Callable
from typing import Any

from gpubench.kernels.libraries import cpu_loop


def rows(zero: Any) -> Callable[..., None]:
    """The loop, for Numba."""

    def loop(a, x, y):  # type: ignore[no-untyped-def] # Numba infers the types
        y[:] = zero
        for i in range(a.shape[0]):
            for j in range(a.shape[1]):
                y[j] += a[i, j] * x[i]

    return loop


VARIANT = cpu_loop(
    "loops exchanged, one thread: rows of A added to y, along memory",
    rows,
)
