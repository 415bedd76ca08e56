"""One pass, one thread: a row gives its element of A·v, and at once its share of the result.

The row is in a cache the second time, so A comes from memory once: PolyBench's loops.
"""

from collections.abc import Callable

from gpubench.model import CallVariant, Tile


def build(_tile: Tile | None, dtype: str) -> Callable[..., None]:
    """The loop compiled for a C-contiguous matrix of `dtype` and vectors."""
    import numba
    import numpy as np

    zero = np.dtype(dtype).type(0)

    def fused(a, v, c):  # type: ignore[no-untyped-def] # Numba infers the types
        c[:] = zero
        for i in range(a.shape[0]):
            total = zero
            for j in range(a.shape[1]):
                total += a[i, j] * v[j]
            for j in range(a.shape[1]):
                c[j] += a[i, j] * total

    element = numba.from_dtype(np.dtype(dtype))
    matrix, vector = element[:, ::1], element[::1]
    return numba.njit((matrix, vector, vector), cache=True)(fused)  # type: ignore[no-any-return]


VARIANT = CallVariant(
    idea="one pass, one thread: each row of A is used twice while it is in a cache",
    runs_on="cpu",
    build=build,
    threads=1,
    baseline="cpu_blas",
)
