"""The textbook double loop, one thread: column by column, across memory.

The inner loop walks down a column of A, so every element it reads lies in a cache line of its own:
what gemv_t costs whoever takes the transposed product at its word. `cpu_rows` reads along memory.
"""

from collections.abc import Callable

from gpubench.model import CallVariant, Tile


def build(_tile: Tile | None, dtype: str) -> Callable[..., None]:
    """The loop compiled for a C-contiguous matrix of `dtype` and vectors."""
    import numba
    import numpy as np

    zero = np.dtype(dtype).type(0)

    def naive(a, x, y):  # type: ignore[no-untyped-def] # Numba infers the types
        for j in range(a.shape[1]):
            total = zero
            for i in range(a.shape[0]):
                total += a[i, j] * x[i]
            y[j] = total

    element = numba.from_dtype(np.dtype(dtype))
    matrix, vector = element[:, ::1], element[::1]
    return numba.njit((matrix, vector, vector), cache=True)(naive)  # type: ignore[no-any-return]


VARIANT = CallVariant(
    idea="double loop, one thread, column by column: a cache line for each element",
    runs_on="cpu",
    build=build,
    threads=1,
    baseline="cpu_blas",
)
