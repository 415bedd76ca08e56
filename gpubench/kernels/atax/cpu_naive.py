from collections.abc import Callable
from typing import Any

from gpubench.kernels.libraries import cpu_loop


def naive(zero: Any) -> Callable[..., None]:
    """The loop, for Numba."""
    import numpy as np

    def loop(a, v, c):  # type: ignore[no-untyped-def] # Numba infers the types
        b = np.empty(a.shape[0], a.dtype)
        for i in range(a.shape[0]):
            total = zero
            for j in range(a.shape[1]):
                total += a[i, j] * v[j]
            b[i] = total
        for j in range(a.shape[1]):
            total = zero
            for i in range(a.shape[0]):
                total += a[i, j] * b[i]
            c[j] = total

    return loop


VARIANT = cpu_loop(
    "two double loops, one thread: A twice, the second time across memory",
    naive,
)
