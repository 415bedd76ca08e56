from collections.abc import Callable

from gpubench.model import CallVariant, Config


def _loop(a, b, offsets, c):  # type: ignore[no-untyped-def] # Numba infers the types
    begin = 0
    for group in range(b.shape[0]):
        for i in range(begin, offsets[group]):
            for j in range(b.shape[2]):
                total = a.dtype.type(0)
                for k in range(a.shape[1]):
                    total += a[i, k] * b[group, k, j]
                c[i, j] = total
        begin = offsets[group]


def build(_tile: Config | None, dtype: str) -> Callable[..., None]:
    """Return the loop for elements of a type."""
    import numba
    import numpy as np

    element = numba.from_dtype(np.dtype(dtype))
    arrays = element[:, ::1], element[:, :, ::1], numba.int32[::1], element[:, ::1]
    return numba.njit(arrays, cache=True)(_loop)  # type: ignore[no-any-return]


VARIANT = CallVariant(
    idea="triple loop i-j-k for each group, one thread",
    dtypes=("float32", "float64"),
    runs_on="cpu",
    build=build,
    threads=1,
    baseline="cpu_blas",
)
