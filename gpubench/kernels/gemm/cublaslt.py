"""cuBLASLt, tuned: the fastest of the algorithms that its heuristic proposes."""

from collections.abc import Callable

from gpubench.kernels.libraries import refuse_ragged_int8
from gpubench.model import CallVariant, Config


def build(_tile: Config | None, dtype: str) -> Callable[..., None]:
    """`cublasLtMatmul` in full precision, its algorithm measured at the first call of a shape."""
    from gpubench.backends.cuda.cublaslt import gemm

    return gemm(dtype)


VARIANT = CallVariant(
    idea="cuBLASLt with the fastest of up to 32 algorithms, found by timing them",
    dtypes=("float32", "float64", "tf32", "float16", "bfloat16", "int8"),
    runs_on="cuda",
    build=build,
    refuse=refuse_ragged_int8,
    baseline="cublas",
    tunes="cublas",
    default=False,
)
