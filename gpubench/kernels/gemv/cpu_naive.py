"""The textbook double loop, one thread: row by row, along memory."""

from collections.abc import Callable

from gpubench.model import CallVariant, Tile


def build(_tile: Tile | None, dtype: str) -> Callable[..., None]:
    """The loop compiled for a C-contiguous matrix of `dtype` and vectors."""
    import numba
    import numpy as np

    zero = np.dtype(dtype).type(0)

    def naive(a, x, y):  # type: ignore[no-untyped-def] # Numba infers the types
        for i in range(a.shape[0]):
            total = zero
            for j in range(a.shape[1]):
                total += a[i, j] * x[j]
            y[i] = total

    element = numba.from_dtype(np.dtype(dtype))
    matrix, vector = element[:, ::1], element[::1]
    return numba.njit((matrix, vector, vector), cache=True)(naive)  # type: ignore[no-any-return]


VARIANT = CallVariant(
    idea="double loop, one thread, row by row",
    runs_on="cpu",
    build=build,
    threads=1,
    baseline="cpu_blas",
)
