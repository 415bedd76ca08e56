from collections.abc import Callable

from gpubench.kernels.libraries import numpy_blas
from gpubench.model import Config


def build(_tile: Config | None, _dtype: str) -> Callable[..., None]:
    """Two calls of `numpy.matmul`, the second of the transposed view."""
    import numpy as np

    return lambda a, v, c: np.matmul(a.T, np.matmul(a, v), out=c)


VARIANT = numpy_blas(build, threads=1, calls="two calls")
