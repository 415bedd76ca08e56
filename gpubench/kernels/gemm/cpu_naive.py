"""The textbook triple loop, one thread: the baseline of the published CPU speed-ups.

In i-j-k order the inner loop walks down a column of B. If N is a power of two, these
elements fall into a few sets of the cache and evict each other. The loop is then several times
slower than at a neighbouring size, so a speed-up over it at 1024 or 2048 flatters the GPU.
"""

from gpubench.kernels.libraries import cpu_loop


def _loop(a, b, c):  # type: ignore[no-untyped-def] # Numba infers the types
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            total = a.dtype.type(0)
            for k in range(a.shape[1]):
                total += a[i, k] * b[k, j]
            c[i, j] = total


VARIANT = cpu_loop(
    "triple loop i-j-k, one thread: the baseline of published speed-ups",
    _loop,
    dimensions=(2, 2, 2),
)
