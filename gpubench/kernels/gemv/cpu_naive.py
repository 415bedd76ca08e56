from gpubench.kernels.libraries import cpu_loop


def _loop(a, x, y):  # type: ignore[no-untyped-def] # Numba infers the types
    for i in range(a.shape[0]):
        total = a.dtype.type(0)
        for j in range(a.shape[1]):
            total += a[i, j] * x[j]
        y[i] = total


VARIANT = cpu_loop("double loop, one thread, row by row", _loop)
