"""Multiplies a vector by a matrix, and the result by the transposed matrix (PolyBench's atax)."""

from gpubench.model.operation import Array, Operation

OPERATION = Operation(
    idea="y (N) = Aᵀ · (A · x (N)), of A (M×N)",
    extents=("M", "N"),
    inputs=(Array("A", "M N"), Array("x", "N")),
    output=Array("y", "N"),
    reference=lambda _, a, x: a.T @ (a @ x),
    flops="4*M*N",
    linear_in=("A", "A", "x"),
    terms="M",
)
