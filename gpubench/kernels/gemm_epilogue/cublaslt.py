from collections.abc import Callable

from gpubench.kernels.gemm_epilogue.operation import FORMS
from gpubench.model import LAYOUTS, CallVariant, Config, Problem
from gpubench.model.variant import Sample


def VARIANT(op: str) -> CallVariant:  # noqa: N802 # the name that descriptions have
    """Return cuBLASLt's product with its own epilogue, for an operation that has one."""
    form = FORMS[op]

    def build(_tile: Config | None, dtype: str) -> Callable[..., None]:
        from gpubench.backends.cuda.cublaslt import gemm
        from gpubench.backends.cuda.epilogue import fused

        return gemm(dtype, fused(*form))

    def tune(
        problem: Problem, cold: bool, sample: Sample, max_launches: int
    ) -> tuple[Callable[..., None], str]:
        from gpubench.backends.cuda.cublaslt import tuned_gemm
        from gpubench.backends.cuda.epilogue import fused

        return tuned_gemm(problem, cold, sample, max_launches, fused(*form))

    def refuse(_tile: Config | None, _problem: Problem) -> str | None:
        if form.act == "silu":
            return "has no epilogue for silu; cublas computes it"
        if form.has_residual and form.act != "bias":
            return "adds a matrix before the activation, not after it; see cublas"
        return None

    return CallVariant(
        idea="cuBLASLt with its own epilogue, and the fastest algorithm of its heuristic",
        dtypes=("float32", "tf32", "float16", "bfloat16"),
        runs_on="cuda",
        build=build,
        tune=tune,
        refuse=refuse,
        layouts=tuple(LAYOUTS),
        baseline="cublas",
        tunes="cublas",
    )
