from collections.abc import Callable
from typing import Any

from gpubench.model import CallVariant


def build(_tile: object, _dtype: str) -> Callable[..., None]:
    import torch

    def attention(q: Any, k: Any, v: Any, o: Any) -> None:
        heads = (each[None, None] for each in (q, k, v))
        o[...] = torch.nn.functional.scaled_dot_product_attention(*heads, is_causal=True)[0, 0]

    return attention


VARIANT = CallVariant(
    idea="torch's attention, and a copy of its result; the baseline on a GPU",
    runs_on="cuda",
    dtypes=("float32", "float16"),
    libraries=("torch",),
    tensors="torch",
    build=build,
    rival=True,
    baseline="attention_torch",
)
