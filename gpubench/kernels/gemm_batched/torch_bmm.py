from collections.abc import Callable
from typing import Any

from gpubench.kernels.libraries import torch_in_precision
from gpubench.model import CallVariant, Config


def build(_tile: Config | None, dtype: str) -> Callable[..., None]:
    """Return the function of A, B and C."""
    import torch

    def multiply(a: Any, b: Any, c: Any) -> None:
        torch.bmm(a, b, out=c)

    return torch_in_precision(dtype, multiply)


VARIANT = CallVariant(
    idea="torch.bmm: PyTorch's call of cuBLAS",
    dtypes=("float32", "float64", "tf32", "float16", "bfloat16"),
    runs_on="cuda",
    build=build,
    tensors="torch",
    libraries=("torch",),
    baseline="cublas",
    rival=True,
    default=False,
)
