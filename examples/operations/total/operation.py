"""The sum over a vector."""

from gpubench.model import Array, Operation

OPERATION = Operation(
    idea="S (1) = the sum over X (N)",
    extents=("N",),
    inputs=(Array("X", "N"),),
    output=Array("S", "1"),
    reference=lambda _, x: x.sum(keepdims=True),
    flops="N",
    linear_in=("X",),
    tolerance=1e-6,
    scale=lambda xp, x: xp.abs(x).sum(keepdims=True),
)
