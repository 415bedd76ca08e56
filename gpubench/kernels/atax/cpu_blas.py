"""NumPy's BLAS on one thread: what the one-thread loops are held against."""

from collections.abc import Callable

from gpubench.model import CallVariant, Tile


def build(_tile: Tile | None, _dtype: str) -> Callable[..., None]:
    """Two calls of `numpy.matmul`, the second of the transposed view."""
    import numpy as np

    return lambda a, v, c: np.matmul(a.T, np.matmul(a, v), out=c)


VARIANT = CallVariant(
    idea="NumPy's BLAS, one thread, two calls",
    dtypes=("float32", "float64"),
    runs_on="cpu",
    build=build,
    threads=1,
    baseline="cpu_blas",
)
