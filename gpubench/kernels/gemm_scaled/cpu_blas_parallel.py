from dataclasses import replace

from gpubench.kernels.gemm_scaled import cpu_blas
from gpubench.model import CallVariant


def VARIANT(op: str) -> CallVariant:  # noqa: N802 # the name that descriptions have
    """Return NumPy's BLAS as in `cpu_blas`, on the fastest number of threads."""
    serial = cpu_blas.VARIANT(op)
    idea = serial.idea.replace("one thread", "the fastest number of threads")
    return replace(serial, idea=idea, threads=0, baseline="cpu_blas_parallel")
