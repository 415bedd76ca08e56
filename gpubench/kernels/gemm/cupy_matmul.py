from collections.abc import Callable

from gpubench.model import CallVariant, Config


def build(_tile: Config | None, _dtype: str) -> Callable[..., None]:
    """Return `cupy.matmul`, which launches CuPy's own kernel for integers."""
    from gpubench.backends.cuda.cublas import cupy_matmul

    return cupy_matmul


VARIANT = CallVariant(
    idea="CuPy's integer kernel, the only library product for int32 on a GPU",
    dtypes=("int32",),
    runs_on="cuda",
    build=build,
)
