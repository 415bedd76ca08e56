from collections.abc import Callable

from gpubench.model import LAYOUTS, CallVariant, Config


def build(_tile: Config | None, dtype: str) -> Callable[..., None]:
    """Return the kernel as a function of A, B and C."""
    from gpubench.kernels.gemm._triton_matmul import TritonMatmul

    return TritonMatmul(dtype)


VARIANT = CallVariant(
    idea="Triton: persistent programs, tiles in groups, the fastest configuration by Triton",
    dtypes=("float32", "tf32", "bf16x3", "bf16x6", "float16", "bfloat16"),
    runs_on="cuda",
    build=build,
    layouts=tuple(LAYOUTS),
    tensors="torch",
    file="_triton_matmul.py",
    libraries=("triton", "torch"),
    baseline="cublas",
    rival=True,
    default=False,
)
