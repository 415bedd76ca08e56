from collections.abc import Callable

from gpubench.kernels.gemm_scaled.operation import BLOCK
from gpubench.model import CallVariant, Config


def _loop(a, b, a_scales, b_scales, c):  # type: ignore[no-untyped-def] # Numba infers the types
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            total = a.dtype.type(0)
            for k in range(a.shape[1]):
                scaled = a[i, k] * a_scales[k // BLOCK, i]
                total += scaled * (b[k, j] * b_scales[j // BLOCK, k // BLOCK])
            c[i, j] = total


def build(_tile: Config | None, dtype: str) -> Callable[..., None]:
    """Return the loop for elements of a type, whose scales are float32."""
    import numba
    import numpy as np

    matrix = numba.from_dtype(np.dtype(dtype))[:, ::1]
    scales = numba.float32[:, ::1]
    return numba.njit((matrix, matrix, scales, scales, matrix), cache=True)(_loop)  # type: ignore[no-any-return]


VARIANT = CallVariant(
    idea="triple loop i-j-k with a scale of each element, one thread",
    dtypes=("float32", "float64"),
    runs_on="cpu",
    build=build,
    threads=1,
    baseline="cpu_blas",
)
