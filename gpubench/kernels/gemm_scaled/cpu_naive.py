from collections.abc import Callable

from gpubench.kernels.gemm_scaled.operation import BLOCK, OPERATION, by_blocks
from gpubench.model import CallVariant, Config


def _by_blocks(a, b, a_scales, b_scales, c):  # type: ignore[no-untyped-def] # Numba infers the types
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            total = a.dtype.type(0)
            for k in range(a.shape[1]):
                scaled = a[i, k] * a_scales[k // BLOCK, i]
                total += scaled * (b[k, j] * b_scales[j // BLOCK, k // BLOCK])
            c[i, j] = total


def _by_rows(a, b, a_scales, b_scales, c):  # type: ignore[no-untyped-def] # Numba infers the types
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            total = a.dtype.type(0)
            for k in range(a.shape[1]):
                total += a[i, k] * b[k, j]
            c[i, j] = total * a_scales[i] * b_scales[j]


def VARIANT(op: str) -> CallVariant:  # noqa: N802 # the name that descriptions have
    """Return the loop of an operation."""
    of_blocks = OPERATION[op].scaled is by_blocks

    def build(_tile: Config | None, dtype: str) -> Callable[..., None]:
        import numba
        import numpy as np

        matrix = numba.from_dtype(np.dtype(dtype))[:, ::1]
        scales = numba.float32[:, ::1] if of_blocks else numba.float32[::1]
        loop = _by_blocks if of_blocks else _by_rows
        return numba.njit((matrix, matrix, scales, scales, matrix), cache=True)(loop)  # type: ignore[no-any-return]

    return CallVariant(
        idea="triple loop i-j-k with scales, one thread",
        dtypes=("float32", "float64"),
        runs_on="cpu",
        build=build,
        threads=1,
        baseline="cpu_blas",
    )
