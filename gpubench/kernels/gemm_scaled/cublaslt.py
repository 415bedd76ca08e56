from collections.abc import Callable

from gpubench.kernels.gemm_scaled.operation import BLOCK, OPERATION, by_blocks
from gpubench.kernels.libraries import refuse_ragged_bytes
from gpubench.model import CallVariant, Config, Problem
from gpubench.model.variant import Sample

OUTER_VEC_32F, VEC128_32F, BLK128X128_32F = 3, 4, 5  # cublasLtMatmulMatrixScale_t

MULTIPLE = 4  # of M, and of the scales of 128 columns of B, which are padded to it


def scale_modes(op: str) -> tuple[int, int]:
    """Return the kinds of scales of A and of B of an operation."""
    if OPERATION[op].scaled is by_blocks:
        return VEC128_32F, BLK128X128_32F
    return OUTER_VEC_32F, OUTER_VEC_32F


def refuse(tile: Config | None, problem: Problem) -> str | None:
    """Also refuse scales of blocks whose rows the library requires to be padded."""
    blocks = -(-problem.k // BLOCK)
    if problem.operation.scaled is by_blocks and (problem.m % MULTIPLE or blocks % MULTIPLE):
        return (
            f"takes M divisible by {MULTIPLE}, and a number of blocks of {BLOCK} along K that is, "
            f"not {problem.m} and {blocks}"
        )
    return refuse_ragged_bytes(tile, problem)


def VARIANT(op: str) -> CallVariant:  # noqa: N802 # the name that descriptions have
    """Return cuBLASLt's product with its own scaling, for an operation."""

    def build(_tile: Config | None, dtype: str) -> Callable[..., None]:
        from gpubench.backends.cuda.cublaslt import Finish, gemm

        return gemm(dtype, Finish(scale_modes=scale_modes(op)))

    def tune(
        problem: Problem, cold: bool, sample: Sample, max_launches: int
    ) -> tuple[Callable[..., None], str]:
        from gpubench.backends.cuda.cublaslt import Finish, tuned_gemm

        finish = Finish(scale_modes=scale_modes(op))
        return tuned_gemm(problem, cold, sample, max_launches, finish)

    return CallVariant(
        idea="cuBLASLt's own scaling (12.9 and newer), and the fastest algorithm of its heuristic",
        dtypes=("float8_e4m3",),
        runs_on="cuda",
        build=build,
        tune=tune,
        refuse=refuse,
        capability=(9, 0),
        baseline="cublas",
        tunes="cublas",
    )
