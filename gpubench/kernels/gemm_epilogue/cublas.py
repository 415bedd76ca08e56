from collections.abc import Callable

from gpubench.kernels.gemm_epilogue.operation import FORMS
from gpubench.model import LAYOUTS, CallVariant, Config, Problem
from gpubench.model.variant import Sample


def VARIANT(op: str) -> CallVariant:  # noqa: N802 # the name that descriptions have
    """Return cuBLASLt's product with a pass over C after it, for an operation."""
    form = FORMS[op]

    def build(_tile: Config | None, dtype: str) -> Callable[..., None]:
        from gpubench.backends.cuda.cublaslt import gemm
        from gpubench.backends.cuda.epilogue import before_pass, with_pass

        return with_pass(form.act, dtype, gemm(dtype, before_pass(dtype)))

    def tune(
        problem: Problem, cold: bool, sample: Sample, max_launches: int
    ) -> tuple[Callable[..., None], str]:
        from gpubench.backends.cuda.cublaslt import tuned_gemm
        from gpubench.backends.cuda.epilogue import before_pass, with_pass

        return tuned_gemm(
            *(problem, cold, sample, max_launches, before_pass(problem.dtype)),
            completed=lambda product: with_pass(form.act, problem.dtype, product),
        )

    return CallVariant(
        idea="cuBLASLt's product, whose sums another kernel reads, finishes and stores",
        dtypes=("float32", "float64", "tf32", "float16", "bfloat16"),
        runs_on="cuda",
        build=build,
        tune=tune,
        layouts=tuple(LAYOUTS),
        baseline="cublas",
    )
