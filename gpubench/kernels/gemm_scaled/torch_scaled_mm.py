from collections.abc import Callable
from typing import Any

from gpubench.kernels.gemm_scaled.cublaslt import refuse
from gpubench.model import CallVariant, Config


def build(_tile: Config | None, _dtype: str) -> Callable[..., None]:
    """Return the function of A, B, their scales and C."""
    import torch

    def multiply(a: Any, b: Any, a_scales: Any, b_scales: Any, c: Any) -> None:
        a, b = (each.view(torch.float8_e4m3fn) for each in (a, b))
        a_scales = a_scales.T if a_scales.ndim > 1 else a_scales[:, None]
        b_scales = b_scales.T if b_scales.ndim > 1 else b_scales[None]
        torch._scaled_mm(a, b, a_scales, b_scales, out_dtype=c.dtype, out=c)  # noqa: SLF001 # torch's name

    return multiply


VARIANT = CallVariant(
    idea="torch._scaled_mm: cuBLASLt for scales of blocks, or a kernel of PyTorch for rows",
    dtypes=("float8_e4m3",),
    runs_on="cuda",
    build=build,
    refuse=refuse,
    capability=(9, 0),
    tensors="torch",
    libraries=("torch",),
    baseline="cublas",
    rival=True,
    default=False,
)
