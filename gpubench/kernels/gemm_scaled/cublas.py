from dataclasses import replace

from gpubench.kernels.gemm_scaled import cublaslt
from gpubench.model import CallVariant


def VARIANT(op: str) -> CallVariant:  # noqa: N802 # the name that descriptions have
    """Return cuBLASLt's product by the first algorithm, for an operation."""
    idea = "cuBLASLt's own scaling (12.9 and newer), and the first algorithm of its heuristic"
    return replace(cublaslt.VARIANT(op), idea=idea, tune=None, tunes="")
