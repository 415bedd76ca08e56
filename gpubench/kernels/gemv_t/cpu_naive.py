"""The textbook double loop, one thread: column by column, across memory.

The inner loop walks down a column of A, so every element lies in another cache line. `cpu_rows`
reads along memory.
"""

from collections.abc import Callable
from typing import Any

from gpubench.kernels.libraries import cpu_loop


def naive(zero: Any) -> Callable[..., None]:
    """The loop, for Numba."""

    def loop(a, x, y):  # type: ignore[no-untyped-def] # Numba infers the types
        for j in range(a.shape[1]):
            total = zero
            for i in range(a.shape[0]):
                total += a[i, j] * x[i]
            y[j] = total

    return loop


VARIANT = cpu_loop(
    "double loop, one thread, column by column: a cache line for each element",
    naive,
)
