from collections.abc import Callable

from gpubench.kernels.libraries import numpy_blas
from gpubench.model import Config


def build(_tile: Config | None, _dtype: str) -> Callable[..., None]:
    """Return `numpy.matmul` of matrix and vector, into the output."""
    import numpy as np

    return lambda a, x, y: np.matmul(a, x, out=y)


VARIANT = numpy_blas(build, threads=1)
