from collections.abc import Callable
from typing import Any

from gpubench.model import CallVariant


def build(_tile: object, _dtype: str) -> Callable[..., None]:
    import torch

    def softmax(x: Any, y: Any) -> None:
        torch.softmax(x, 1, out=y)

    return softmax


VARIANT = CallVariant(
    idea="torch.softmax, the baseline on a GPU",
    runs_on="cuda",
    dtypes=("float32",),
    libraries=("torch",),
    tensors="torch",
    build=build,
    rival=True,
    baseline="softmax_torch",
)
