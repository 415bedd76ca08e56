"""The loops of cpu_naive exchanged, one thread: each row of A, times its x, is added to y.

A is read along memory; y is read and written once a row, and stays in a cache.
"""

from collections.abc import Callable

from gpubench.model import CallVariant, Tile


def build(_tile: Tile | None, dtype: str) -> Callable[..., None]:
    """The loop compiled for a C-contiguous matrix of `dtype` and vectors."""
    import numba
    import numpy as np

    zero = np.dtype(dtype).type(0)

    def rows(a, x, y):  # type: ignore[no-untyped-def] # Numba infers the types
        y[:] = zero
        for i in range(a.shape[0]):
            for j in range(a.shape[1]):
                y[j] += a[i, j] * x[i]

    element = numba.from_dtype(np.dtype(dtype))
    matrix, vector = element[:, ::1], element[::1]
    return numba.njit((matrix, vector, vector), cache=True)(rows)  # type: ignore[no-any-return]


VARIANT = CallVariant(
    idea="loops exchanged, one thread: rows of A added to y, along memory",
    runs_on="cpu",
    build=build,
    threads=1,
    baseline="cpu_blas",
)
