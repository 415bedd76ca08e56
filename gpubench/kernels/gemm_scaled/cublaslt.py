from collections.abc import Callable
from typing import TYPE_CHECKING

from gpubench.kernels.gemm_scaled.operation import BLOCK
from gpubench.kernels.libraries import refuse_ragged_bytes
from gpubench.model import CallVariant, Config, Problem
from gpubench.model.variant import Sample

if TYPE_CHECKING:
    from gpubench.backends.cuda.cublaslt import Finish

VEC128_32F, BLK128X128_32F = 4, 5  # cublasLtMatmulMatrixScale_t

MULTIPLE = 4  # of M, and of the scales of 128 columns of B, which are padded to it


def scaled_product() -> "Finish":
    """Return what the library does with A and B before it multiplies them."""
    from gpubench.backends.cuda.cublaslt import Finish

    return Finish(scale_modes=(VEC128_32F, BLK128X128_32F))


def refuse(tile: Config | None, problem: Problem) -> str | None:
    """Also refuse scales whose rows the library wants padded."""
    if problem.m % MULTIPLE or -(-problem.k // BLOCK) % MULTIPLE:
        return (
            f"takes M divisible by {MULTIPLE}, and a number of blocks of {BLOCK} along K that is, "
            f"not {problem.m} and {-(-problem.k // BLOCK)}"
        )
    return refuse_ragged_bytes(tile, problem)


def build(_tile: Config | None, dtype: str) -> Callable[..., None]:
    """Return the product by the heuristic's first algorithm."""
    from gpubench.backends.cuda.cublaslt import gemm

    return gemm(dtype, scaled_product())


def tune(
    problem: Problem, cold: bool, sample: Sample, max_launches: int
) -> tuple[Callable[..., None], str]:
    """Return the product by the fastest of the algorithms that the heuristic proposes."""
    from gpubench.backends.cuda.cublaslt import tuned_gemm

    return tuned_gemm(problem, cold, sample, max_launches, scaled_product())


VARIANT = CallVariant(
    idea="cuBLASLt's block scaling, and the fastest algorithm of its heuristic",
    dtypes=("float8_e4m3",),
    runs_on="cuda",
    build=build,
    tune=tune,
    refuse=refuse,
    capability=(9, 0),
    baseline="cublas",
    tunes="cublas",
)
