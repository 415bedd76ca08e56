from collections.abc import Callable

from gpubench.model import CallVariant, Config


def build(_tile: Config | None, _dtype: str) -> Callable[..., None]:
    """Return `cublasGemmEx` in fixed point. The row's algorithm reports the number of bits."""
    from gpubench.backends.cuda.emulated import EmulatedGemm

    return EmulatedGemm()


VARIANT = CallVariant(
    idea="cuBLAS with float64 emulated in fixed point, by int8 products (cuBLAS 13.1 and newer)",
    dtypes=("float64",),
    runs_on="cuda",
    build=build,
    baseline="cublas",
    default=False,
)
