import numpy as np

from gpubench.kernels.libraries import cpu_loop


def _loop(a, v, c):  # type: ignore[no-untyped-def] # Numba infers the types
    b = np.empty(a.shape[0], a.dtype)
    for i in range(a.shape[0]):
        total = a.dtype.type(0)
        for j in range(a.shape[1]):
            total += a[i, j] * v[j]
        b[i] = total
    for j in range(a.shape[1]):
        total = a.dtype.type(0)
        for i in range(a.shape[0]):
            total += a[i, j] * b[i]
        c[j] = total


VARIANT = cpu_loop("two double loops, one thread: A twice, the second time across memory", _loop)
