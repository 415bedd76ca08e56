from collections.abc import Callable
from typing import Any

from gpubench.kernels.gemm_scaled.operation import OPERATION
from gpubench.model import CallVariant, Config


def VARIANT(op: str) -> CallVariant:  # noqa: N802 # the name that descriptions have
    """Return NumPy's BLAS on scaled copies, for an operation."""
    scaled: Callable[..., tuple[Any, Any]] = OPERATION[op].scaled  # type: ignore[assignment] # stated

    def build(_tile: Config | None, _dtype: str) -> Callable[..., None]:
        import numpy as np

        def call(a: Any, b: Any, a_scales: Any, b_scales: Any, c: Any) -> None:
            a, b = scaled(np, a, b, a_scales, b_scales)
            np.matmul(a.astype(c.dtype, copy=False), b.astype(c.dtype, copy=False), out=c)

        return call

    return CallVariant(
        idea="NumPy's BLAS, one thread, after copies of A and B that are multiplied by the scales",
        dtypes=("float32", "float64"),
        runs_on="cpu",
        build=build,
        threads=1,
        baseline="cpu_blas",
    )
