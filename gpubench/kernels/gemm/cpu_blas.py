from collections.abc import Callable

from gpubench.kernels.libraries import numpy_blas
from gpubench.model import LAYOUTS, Config


def build(_tile: Config | None, _dtype: str) -> Callable[..., None]:
    """`numpy.matmul` into the output."""
    import numpy as np

    return lambda a, b, c: np.matmul(a, b, out=c)


VARIANT = numpy_blas(build, threads=1, layouts=tuple(LAYOUTS))
