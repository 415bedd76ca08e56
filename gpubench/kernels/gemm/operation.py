"""The product of two matrices, as BLAS names it."""

from gpubench.model.operation import Array, Operation

OPERATION = Operation(
    idea="C (M×N) = A (M×K) · B (K×N)",
    extents=("M", "N", "K"),
    inputs=(Array("A", "M K"), Array("B", "K N")),
    output=Array("C", "M N"),
    reference=lambda _, a, b: a @ b,
    flops="2*M*N*K",
    linear_in=("A", "B"),
    terms="K",
)
