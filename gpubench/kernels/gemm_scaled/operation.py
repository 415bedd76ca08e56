"""Products of matrices whose elements share scales, as in models in float8.

Numbers of 8 bits have too small a range for a whole matrix, so groups of elements have a scale in
float32. In `gemm_scaled`, as in DeepSeek-V3, a scale belongs to 128 values of k in a row of A
(activations), or to 128×128 elements of B (weights). In memory, the scales of A lie along m, and
the scales of B along k, as libraries require. In `gemm_scaled_rows`, each row of A and each column
of B has a scale.
"""

from collections.abc import Callable
from typing import Any

from gpubench.model.operation import Array, Operation

BLOCK = 128  # number of values of k, and of columns of B, that share a scale


def by_blocks(xp: Any, a: Any, b: Any, a_scales: Any, b_scales: Any) -> tuple[Any, Any]:
    """Return A and B, each element multiplied by the scale of its block."""
    depth, columns = b.shape
    of_a = xp.repeat(a_scales, BLOCK, axis=0)[:depth].T
    of_b = xp.repeat(xp.repeat(b_scales, BLOCK, axis=1)[:, :depth], BLOCK, axis=0)[:columns].T
    return a * of_a, b * of_b


def by_rows(_xp: Any, a: Any, b: Any, a_scales: Any, b_scales: Any) -> tuple[Any, Any]:
    """Return A and B, each element multiplied by the scale of its row of A or column of B."""
    return a * a_scales[:, None], b * b_scales


def _operation(
    idea: str, scaled: Callable[..., tuple[Any, Any]], of_a: str, of_b: str
) -> Operation:
    def reference(xp: Any, *operands: Any) -> Any:
        a, b = scaled(xp, *operands)
        return a @ b

    def scale(xp: Any, *operands: Any) -> Any:
        """Return ‖row of A‖·‖column of B‖ of the scaled matrices, for each element of C."""
        a, b = scaled(xp, *operands)
        return xp.sqrt(xp.square(a).sum(axis=1))[:, None] * xp.sqrt(xp.square(b).sum(axis=0))

    return Operation(
        idea=f"C (M×N) = A (M×K) · B (K×N), with a scale for each {idea}",
        extents=("M", "N", "K"),
        inputs=(
            Array("A", "M K"),
            Array("B", "K N"),
            Array("a_scales", of_a, dtype="float32"),
            Array("b_scales", of_b, dtype="float32"),
        ),
        output=Array("C", "M N"),
        reference=reference,
        flops="2*M*N*K",
        linear_in=("A", "B"),
        scaled=scaled,
        terms="K",
        scale=scale,
    )


OPERATION = {
    "gemm_scaled": _operation(
        "1×128 block of A and 128×128 block of B", by_blocks, "K/128 M", "N/128 K/128"
    ),
    "gemm_scaled_rows": _operation("row of A and column of B", by_rows, "M", "N"),
}
