from gpubench.kernels.gemm_scaled.operation import OPERATION, by_blocks
from gpubench.model import CudaVariant, edges


def VARIANT(op: str) -> CudaVariant:  # noqa: N802 # the name that descriptions have
    """Return the kernel of an operation."""
    scales = "Blocks" if OPERATION[op].scaled is by_blocks else "Rows"
    return CudaVariant(
        idea="shared_tile of gemm, whose threads multiply elements by their scales",
        kernel=f"scaled_tile<{{scalar}}, {{edge}}, {scales}>",
        dtypes=("float32", "float64", "float16", "bfloat16", "float8_e4m3"),
        tiles=edges(
            1, 32, because="TILE×TILE threads, and a block holds at most 1024", default=(16, 32)
        ),
        grid=("N/edge", "M/edge"),
        block=("edge", "edge"),
        reuse=lambda tile: (tile["edge"], tile["edge"]),
        baseline="cublas",
    )
