"""torch.mm on the CPU, a Python function as a kernel. It needs `pip install torch`, but no GPU."""

from collections.abc import Callable
from typing import Any

from gpubench.model import CallVariant, Config


def build(_tile: Config | None, _dtype: str) -> Callable[..., None]:
    """Return the function of A, B and C, which are torch tensors in gpubench's memory."""
    import torch

    def multiply(a: Any, b: Any, c: Any) -> None:
        torch.mm(a, b, out=c)

    return multiply


VARIANT = CallVariant(
    idea="torch.mm into gpubench's tensor",
    dtypes=("float32", "float64"),
    runs_on="cpu",
    build=build,
    tensors="torch",
    libraries=("torch",),
    baseline="cpu_blas_parallel",
)
