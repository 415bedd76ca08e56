from collections.abc import Callable
from typing import Any

from gpubench.kernels.libraries import torch_in_precision
from gpubench.model import CallVariant, Config

MODE = "max-autotune-no-cudagraphs"
"""The mode times candidates at each new size. A CUDA graph would replay fixed addresses."""

MAX_COMPILED = 1000
"""Maximum number of sizes to compile for. Beyond its default of 8, torch does not compile."""


def build(_tile: Config | None, dtype: str) -> Callable[..., None]:
    """Return the compiled function of A, B and C."""
    import torch

    torch._dynamo.config.recompile_limit = MAX_COMPILED  # noqa: SLF001 # named so in its guide
    torch._dynamo.config.accumulated_recompile_limit = MAX_COMPILED  # noqa: SLF001 # named so in its guide

    def multiply(a: Any, b: Any, c: Any) -> None:
        torch.mm(a, b, out=c)

    compiled = torch.compile(multiply, mode=MODE, dynamic=False)
    return torch_in_precision(dtype, compiled)


VARIANT = CallVariant(
    idea="torch.compile with max-autotune, writing into C, by a copy unless it fuses the copy",
    dtypes=("float32", "tf32", "float16", "bfloat16"),
    runs_on="cuda",
    build=build,
    tensors="torch",
    libraries=("torch", "triton"),
    baseline="cublas",
    rival=True,
    default=False,
)
