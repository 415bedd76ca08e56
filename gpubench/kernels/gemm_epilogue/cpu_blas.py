from collections.abc import Callable
from typing import Any

from gpubench.kernels.gemm_epilogue.operation import ACTS, FORMS, OPERATION
from gpubench.model import LAYOUTS, CallVariant, Config


def VARIANT(op: str) -> CallVariant:  # noqa: N802 # the name that descriptions have
    """Return NumPy's BLAS with NumPy's passes over C, for an operation."""

    def build(_tile: Config | None, _dtype: str) -> Callable[..., None]:
        import numpy as np

        def call(a: Any, b: Any, bias: Any, *others: Any) -> None:
            *residual, c = others
            np.matmul(a, b, out=c)
            c += bias
            c[...] = act(np, c)
            if residual:
                c += residual[0]

        return call

    act = ACTS[FORMS[op].act]

    return CallVariant(
        idea=f"NumPy's BLAS, one thread, then passes over C: {OPERATION[op].idea}",
        dtypes=("float32", "float64"),
        runs_on="cpu",
        build=build,
        layouts=tuple(LAYOUTS),
        threads=1,
        baseline="cpu_blas",
    )
