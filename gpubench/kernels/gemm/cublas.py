"""NVIDIA's cuBLAS, the mark that the other variants are held against."""

from collections.abc import Callable

from gpubench.model import CallVariant, Tile


def build(_tile: Tile | None, dtype: str) -> Callable[..., None]:
    """`cublasSgemm` or `cublasDgemm`, in full precision."""
    from gpubench.backends.cuda.cublas import gemm

    return gemm(dtype)


VARIANT = CallVariant(
    idea="cuBLAS in the dtype's own precision (float32 without TF32)",
    dtypes=("float32", "float64", "tf32", "float16", "bfloat16", "int8"),
    runs_on="cuda",
    build=build,
    baseline="cublas",
)
