"""NVIDIA's cuBLAS, the mark that the other variants are held against."""

from collections.abc import Callable

from gpubench.model import CallVariant, Tile


def build(_tile: Tile | None, dtype: str) -> Callable[..., None]:
    """`cublasSgemv` or `cublasDgemv`, twice."""
    from gpubench.backends.cuda.cublas import atax

    return atax(dtype)


VARIANT = CallVariant(
    idea="cuBLAS in the dtype's own precision, two calls",
    dtypes=("float32", "float64"),
    runs_on="cuda",
    build=build,
    baseline="cublas",
)
