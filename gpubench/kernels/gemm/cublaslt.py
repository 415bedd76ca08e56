from collections.abc import Callable

from gpubench.kernels.libraries import refuse_ragged_bytes
from gpubench.model import LAYOUTS, CallVariant, Config, Problem
from gpubench.model.variant import Sample


def build(_tile: Config | None, dtype: str) -> Callable[..., None]:
    """Return `cublasLtMatmul` in full precision, with the heuristic's first algorithm."""
    from gpubench.backends.cuda.cublaslt import gemm

    return gemm(dtype)


def tune(
    problem: Problem, cold: bool, sample: Sample, max_launches: int
) -> tuple[Callable[..., None], str]:
    """Return the call with the fastest of the algorithms that the heuristic proposes."""
    from gpubench.backends.cuda.cublaslt import tuned_gemm

    return tuned_gemm(problem, cold, sample, max_launches)


VARIANT = CallVariant(
    idea="cuBLASLt with the fastest of the algorithms that its heuristic proposes",
    dtypes=(
        *("float32", "float64", "tf32", "bf16x3", "bf16x6", "float16", "float16_sum16", "bfloat16"),
        *("int8", "float8_e4m3", "float8_e4m3_split"),
    ),
    runs_on="cuda",
    build=build,
    tune=tune,
    refuse=refuse_ragged_bytes,
    layouts=tuple(LAYOUTS),
    baseline="cublas",
    tunes="cublas",
    default=False,
)
