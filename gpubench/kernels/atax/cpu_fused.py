"""One pass, one thread: a row gives its element of A·v, and at once its share of the result.

The row is in a cache the second time, so A comes from memory once. The loops are PolyBench's.
"""

from gpubench.kernels.libraries import cpu_loop


def _loop(a, v, c):  # type: ignore[no-untyped-def] # Numba infers the types
    c[:] = a.dtype.type(0)
    for i in range(a.shape[0]):
        total = a.dtype.type(0)
        for j in range(a.shape[1]):
            total += a[i, j] * v[j]
        for j in range(a.shape[1]):
            c[j] += a[i, j] * total


VARIANT = cpu_loop(
    "one pass, one thread: each row of A is used twice while it is in a cache", _loop
)
