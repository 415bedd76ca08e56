"""CuPy's own integer product: cuBLAS has none for int32."""

from collections.abc import Callable

from gpubench.model import CallVariant, Config


def build(_tile: Config | None, _dtype: str) -> Callable[..., None]:
    """`cupy.matmul`, which for integers launches a kernel of CuPy's."""
    from gpubench.backends.cuda.cublas import cupy_matmul

    return cupy_matmul


VARIANT = CallVariant(
    idea="CuPy's integer kernel, the library product that int32 has on a GPU",
    dtypes=("int32",),
    runs_on="cuda",
    build=build,
)
