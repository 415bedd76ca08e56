from gpubench.kernels.libraries import cpu_loop


def _loop(a, b, c):  # type: ignore[no-untyped-def] # Numba infers the types
    for batch in range(a.shape[0]):
        for i in range(a.shape[1]):
            for j in range(b.shape[2]):
                total = a.dtype.type(0)
                for k in range(a.shape[2]):
                    total += a[batch, i, k] * b[batch, k, j]
                c[batch, i, j] = total


VARIANT = cpu_loop("triple loop i-j-k for each product, one thread", _loop, dimensions=(3, 3, 3))
