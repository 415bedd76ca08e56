"""What the libraries' routines take."""

from __future__ import annotations

from gpubench.model import Problem
from gpubench.plan.registry import of_op


def test_int8_of_cublas_needs_rows_of_whole_words() -> None:
    for name in ("cublas", "cublaslt"):
        variant = of_op("gemm")[name]
        for (n, k), taken in (((8, 12), True), ((7, 8), False), ((8, 7), False)):
            reason = variant.refuse(None, Problem(op="gemm", m=5, n=n, k=k, dtype="int8"))
            assert (reason is None) == taken
            assert variant.refuse(None, Problem(op="gemm", m=5, n=n, k=k, dtype="tf32")) is None
