from collections.abc import Callable
from typing import Any

from gpubench.model import CallVariant, Config


def build(_tile: Config | None, _dtype: str) -> Callable[..., Any]:
    """Return the function of A, B and the offsets that returns C."""
    import torch

    def multiply(a: Any, b: Any, offsets: Any) -> Any:
        return torch._grouped_mm(a, b, offs=offsets)  # noqa: SLF001 # torch's name

    return multiply


VARIANT = CallVariant(
    idea="torch._grouped_mm: PyTorch's kernel for groups, with a copy of its result into C",
    dtypes=("bfloat16",),
    runs_on="cuda",
    build=build,
    capability=(9, 0),
    tensors="torch",
    returns=True,
    libraries=("torch",),
    baseline="cublas",
    rival=True,
    default=False,
)
