"""cuBLAS with float64 made of int8 products: a row of its own, and never a baseline."""

from collections.abc import Callable

from gpubench.model import CallVariant, Config


def build(_tile: Config | None, _dtype: str) -> Callable[..., None]:
    """`cublasGemmEx` in fixed point; the row's algorithm says with how many bits."""
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
