from collections.abc import Callable
from typing import Any

from gpubench.kernels.libraries import cpu_loop


def naive(zero: Any) -> Callable[..., None]:
    """The loop, for Numba."""

    def loop(a, x, y):  # type: ignore[no-untyped-def] # Numba infers the types
        for i in range(a.shape[0]):
            total = zero
            for j in range(a.shape[1]):
                total += a[i, j] * x[j]
            y[i] = total

    return loop


VARIANT = cpu_loop(
    "double loop, one thread, row by row",
    naive,
)
