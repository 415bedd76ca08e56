"""The loops of cpu_naive exchanged, one thread: rows of A, times elements of x, are added to y.

A is read along memory. y is read and written once per row, and stays in a cache.
"""

from gpubench.kernels.libraries import cpu_loop


def _loop(a, x, y):  # type: ignore[no-untyped-def] # Numba infers the types
    y[:] = a.dtype.type(0)
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            y[j] += a[i, j] * x[i]


VARIANT = cpu_loop("loops exchanged, one thread: rows of A added to y, along memory", _loop)
