"""The textbook double loop, one thread: column by column, across memory.

The inner loop walks down a column of A, so every element lies in another cache line. `cpu_rows`
reads along memory.
"""

from gpubench.kernels.libraries import cpu_loop


def _loop(a, x, y):  # type: ignore[no-untyped-def] # Numba infers the types
    for j in range(a.shape[1]):
        total = a.dtype.type(0)
        for i in range(a.shape[0]):
            total += a[i, j] * x[i]
        y[j] = total


VARIANT = cpu_loop(
    "double loop, one thread, column by column: a cache line for each element", _loop
)
