"""torch.mm on a GPU. gpubench makes the timed stream torch's current stream."""

from collections.abc import Callable

from gpubench.model import CallVariant, Config


def build(_tile: Config | None, _dtype: str) -> Callable[..., None]:
    """Return the function of A and B, which returns their product."""
    import torch

    product: Callable[..., None] = torch.mm
    return product


VARIANT = CallVariant(
    idea="torch.mm, whose result is copied",
    dtypes=("float32", "float16", "bfloat16"),
    runs_on="cuda",
    build=build,
    returns=True,
    tensors="torch",
    libraries=("torch",),
    baseline="cublas",
)
