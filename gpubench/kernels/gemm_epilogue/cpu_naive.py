"""The textbook triple loop with the epilogue inside, one thread."""

import math
from collections.abc import Callable
from typing import Any

from gpubench.kernels.gemm_epilogue.operation import FORMS
from gpubench.model import CallVariant, Config


def VARIANT(op: str) -> CallVariant:  # noqa: N802 # the name that descriptions have
    """Return the loop of an operation."""
    form = FORMS[op]

    def build(_tile: Config | None, dtype: str) -> Callable[..., None]:
        import numba
        import numpy as np

        # Constants of the compiled loop, by which Numba's cache tells instances apart.
        act, has_residual = form.act, form.has_residual

        def loop(a, b, bias, residual, c):  # type: ignore[no-untyped-def] # Numba infers the types
            for i in range(a.shape[0]):
                for j in range(b.shape[1]):
                    z = bias[j]
                    for k in range(a.shape[1]):
                        z += a[i, k] * b[k, j]
                    if act == "relu" and z < 0:
                        z *= 0
                    if act == "gelu":
                        z *= 0.5 * (1 + math.tanh(0.7978845608028654 * (z + 0.044715 * z**3)))
                    if act == "silu":
                        z /= 1 + math.exp(-z)
                    c[i, j] = z + residual[i, j] if has_residual else z

        element = numba.from_dtype(np.dtype(dtype))
        matrix, vector = element[:, ::1], element[::1]
        compiled = numba.njit((matrix, matrix, vector, matrix, matrix), cache=True)(loop)

        def call(a: Any, b: Any, bias: Any, *others: Any) -> None:
            compiled(a, b, bias, others[0], others[-1])  # without a residual, C takes its place

        return call

    return CallVariant(
        idea="triple loop i-j-k with the epilogue inside, one thread",
        dtypes=("float32", "float64"),
        runs_on="cpu",
        build=build,
        threads=1,
        baseline="cpu_blas",
    )
