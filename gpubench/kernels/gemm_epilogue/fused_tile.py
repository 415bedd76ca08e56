from gpubench.kernels.gemm_epilogue.operation import FORMS
from gpubench.model import CudaVariant, edges


def VARIANT(op: str) -> CudaVariant:  # noqa: N802 # the name that descriptions have
    """Return the kernel of an operation."""
    form = FORMS[op]
    return CudaVariant(
        idea="shared_tile of gemm, whose threads finish an element of C before they store it",
        kernel=f"fused_tile{form.suffix}<{{scalar}}, {{edge}}, {form.act.capitalize()}>",
        dtypes=("float32", "float64", "float16", "bfloat16"),
        tiles=edges(
            1, 32, because="TILE×TILE threads, and a block holds at most 1024", default=(16, 32)
        ),
        grid=("N/edge", "M/edge"),
        block=("edge", "edge"),
        reuse=lambda tile: (tile["edge"], tile["edge"]),
        baseline="cublas",
    )
