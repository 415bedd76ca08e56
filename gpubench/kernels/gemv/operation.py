"""The product of a matrix and a vector, as BLAS names it."""

from gpubench.model.operation import Array, Operation

OPERATION = Operation(
    idea="y (M) = A (M×N) · x (N)",
    extents=("M", "N"),
    inputs=(Array("A", "M N"), Array("x", "N")),
    output=Array("y", "M"),
    reference=lambda _, a, x: a @ x,
    flops="2*M*N",
    linear_in=("A", "x"),
    terms="N",
)
