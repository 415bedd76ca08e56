from collections.abc import Callable
from typing import Any

from gpubench.kernels.gemm_epilogue.operation import FORMS, OPERATION
from gpubench.model import LAYOUTS, CallVariant, Config


def VARIANT(op: str) -> CallVariant:  # noqa: N802 # the name that descriptions have
    """Return NumPy's BLAS with NumPy's passes over C, for an operation."""

    def build(_tile: Config | None, _dtype: str) -> Callable[..., None]:
        import numpy as np

        def call(a: Any, b: Any, bias: Any, *others: Any) -> None:
            *residual, c = others
            np.matmul(a, b, out=c)
            c += bias
            finish(np, c)
            if residual:
                c += residual[0]

        finish = _ACTS[FORMS[op].act]
        return call

    return CallVariant(
        idea=f"NumPy's BLAS, one thread, then passes over C: {OPERATION[op].idea}",
        dtypes=("float32", "float64"),
        runs_on="cpu",
        build=build,
        layouts=tuple(LAYOUTS),
        threads=1,
        baseline="cpu_blas",
    )


def _gelu(np: Any, c: Any) -> None:
    inner = c * c
    inner *= c.dtype.type(0.044715 * 0.7978845608028654)
    inner += c.dtype.type(0.7978845608028654)
    inner *= c
    np.tanh(inner, out=inner)
    inner += 1
    c *= inner
    c *= c.dtype.type(0.5)


def _silu(np: Any, c: Any) -> None:
    inner = np.tanh(c * c.dtype.type(0.5))
    inner += 1
    c *= inner
    c *= c.dtype.type(0.5)


_ACTS: dict[str, Callable[[Any, Any], object]] = {
    "bias": lambda _np, _c: None,
    "relu": lambda np, c: np.maximum(c, 0, out=c),
    "gelu": _gelu,
    "silu": _silu,
}
"""The activations, in place."""
