from collections.abc import Callable
from typing import Any

from gpubench.kernels.gemm_grouped.operation import spans
from gpubench.model import CallVariant, Config


def build(_tile: Config | None, _dtype: str) -> Callable[..., None]:
    """Return the function of A, B, the offsets and C."""
    import numpy as np

    def call(a: Any, b: Any, offsets: Any, c: Any) -> None:
        for group, begin, end in spans(offsets):
            np.matmul(a[begin:end], b[group], out=c[begin:end])

    return call


VARIANT = CallVariant(
    idea="NumPy's BLAS, one thread, a call for each group",
    dtypes=("float32", "float64"),
    runs_on="cpu",
    build=build,
    threads=1,
    baseline="cpu_blas",
)
