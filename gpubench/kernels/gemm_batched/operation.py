"""Products of pairs of matrices in one launch. Attention has such a pair for each head."""

from typing import Any

from gpubench.model.operation import Array, Operation


def _scale(xp: Any, a: Any, b: Any) -> Any:
    """Return ‖row of A‖·‖column of B‖ for each element of C."""
    rows, columns = xp.square(a).sum(axis=2), xp.square(b).sum(axis=1)
    return xp.sqrt(rows)[:, :, None] * xp.sqrt(columns)[:, None, :]


OPERATION = Operation(
    idea="C (M×N) = A (M×K) · B (K×N), for each of BATCH pairs A and B",
    extents=("BATCH", "M", "N", "K"),
    inputs=(Array("A", "BATCH M K"), Array("B", "BATCH K N")),
    output=Array("C", "BATCH M N"),
    reference=lambda _, a, b: a @ b,
    flops="2*BATCH*M*N*K",
    linear_in=("A", "B"),
    terms="K",
    scale=_scale,
)
