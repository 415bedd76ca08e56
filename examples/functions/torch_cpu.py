"""torch.mm on the CPU: a Python function as a kernel. `pip install torch`, and no GPU."""

from collections.abc import Callable
from typing import Any

from gpubench.model import CallVariant, Config


def build(_tile: Config | None, _dtype: str) -> Callable[..., None]:
    """Give the function of A, B and C: torch tensors in gpubench's own memory."""
    import torch

    def multiply(a: Any, b: Any, c: Any) -> None:
        torch.mm(a, b, out=c)

    return multiply


VARIANT = CallVariant(
    idea="torch.mm into the tensor that it is given",
    dtypes=("float32", "float64"),
    runs_on="cpu",
    build=build,
    tensors="torch",
    libraries=("torch",),
    baseline="cpu_blas_parallel",
)
