"""The textbook triple loop, one thread: the baseline of the published CPU speed-ups.

In i-j-k order the inner loop walks down a column of B. Where N is a power of two those elements
fall into a few sets of the cache and evict each other, so it is several times slower there than
at a neighbouring size: a speed-up over it at 1024 or 2048 flatters the GPU.
"""

from collections.abc import Callable

from gpubench.model import CallVariant, Tile


def build(_tile: Tile | None, dtype: str) -> Callable[..., None]:
    """The loop compiled for C-contiguous matrices of `dtype`."""
    import numba
    import numpy as np

    zero = np.dtype(dtype).type(0)

    def naive(a, b, c):  # type: ignore[no-untyped-def] # Numba infers the types
        for i in range(a.shape[0]):
            for j in range(b.shape[1]):
                total = zero
                for k in range(a.shape[1]):
                    total += a[i, k] * b[k, j]
                c[i, j] = total

    matrix = numba.from_dtype(np.dtype(dtype))[:, ::1]
    return numba.njit((matrix, matrix, matrix), cache=True)(naive)  # type: ignore[no-any-return]


VARIANT = CallVariant(
    idea="triple loop i-j-k, one thread: the baseline of published speed-ups",
    runs_on="cpu",
    build=build,
    threads=1,
    baseline="cpu_blas",
)
