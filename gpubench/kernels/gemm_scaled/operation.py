"""Products of elements that share scales, as models in float8 have them.

Numbers of 8 bits have too small a range for a whole matrix, so blocks of elements have a scale in
float32. DeepSeek-V3 has a scale for each 128 values of k of a row of A (activations), and one for
each 128×128 elements of B (weights). The scales of A lie along m, and those of B along k, as
libraries take them.
"""

from typing import Any

from gpubench.model.operation import Array, Operation

BLOCK = 128  # values of k, and columns of B, that share a scale


def scaled(xp: Any, a: Any, b: Any, a_scales: Any, b_scales: Any) -> tuple[Any, Any]:
    """Return A and B, each element multiplied by its scale."""
    depth, columns = b.shape
    of_a = xp.repeat(a_scales, BLOCK, axis=0)[:depth].T
    of_b = xp.repeat(xp.repeat(b_scales, BLOCK, axis=1)[:, :depth], BLOCK, axis=0)[:columns].T
    return a * of_a, b * of_b


def _reference(xp: Any, *operands: Any) -> Any:
    a, b = scaled(xp, *operands)
    return a @ b


def _scale(xp: Any, *operands: Any) -> Any:
    """Return ‖row of A‖·‖column of B‖ of each element, with scales."""
    a, b = scaled(xp, *operands)
    return xp.sqrt(xp.square(a).sum(axis=1))[:, None] * xp.sqrt(xp.square(b).sum(axis=0))


OPERATION = Operation(
    idea="C (M×N) = A (M×K) · B (K×N), with scales of 1×128 of A and of 128×128 of B",
    extents=("M", "N", "K"),
    inputs=(
        Array("A", "M K"),
        Array("B", "K N"),
        Array("a_scales", "K/128 M", dtype="float32"),
        Array("b_scales", "N/128 K/128", dtype="float32"),
    ),
    output=Array("C", "M N"),
    reference=_reference,
    flops="2*M*N*K",
    linear_in=("A", "B"),
    scaled=scaled,
    terms="K",
    scale=_scale,
)
