"""The product of a transposed matrix and a vector."""

from gpubench.model.operation import Array, Operation

OPERATION = Operation(
    idea="y (N) = Aᵀ · x (M), of A (M×N)",
    extents=("M", "N"),
    inputs=(Array("A", "M N"), Array("x", "M")),
    output=Array("y", "N"),
    reference=lambda _, a, x: a.T @ x,
    flops="2*M*N",
    linear_in=("A", "x"),
    terms="M",
)
