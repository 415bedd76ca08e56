"""NumPy's BLAS on one thread: what the one-thread loops are held against."""

from collections.abc import Callable

from gpubench.model import CallVariant, Tile


def build(_tile: Tile | None, _dtype: str) -> Callable[..., None]:
    """`numpy.matmul` into the output."""
    import numpy as np

    return lambda a, b, c: np.matmul(a, b, out=c)


VARIANT = CallVariant(
    idea="NumPy's BLAS, one thread",
    dtypes=("float32", "float64"),
    runs_on="cpu",
    build=build,
    threads=1,
    baseline="cpu_blas",
)
