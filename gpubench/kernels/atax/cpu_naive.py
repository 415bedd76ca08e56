"""The two textbook double loops, one thread: b = A·v row by row, then c = Aᵀ·b column by column."""

from collections.abc import Callable

from gpubench.model import CallVariant, Tile


def build(_tile: Tile | None, dtype: str) -> Callable[..., None]:
    """The loop compiled for a C-contiguous matrix of `dtype` and vectors."""
    import numba
    import numpy as np

    zero = np.dtype(dtype).type(0)

    def naive(a, v, c):  # type: ignore[no-untyped-def] # Numba infers the types
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

    element = numba.from_dtype(np.dtype(dtype))
    matrix, vector = element[:, ::1], element[::1]
    return numba.njit((matrix, vector, vector), cache=True)(naive)  # type: ignore[no-any-return]


VARIANT = CallVariant(
    idea="two double loops, one thread: A twice, the second time across memory",
    runs_on="cpu",
    build=build,
    threads=1,
    baseline="cpu_blas",
)
