"""Softmax of each row."""

from typing import Any

from gpubench.model import Array, Operation


def softmax(xp: Any, x: Any) -> Any:
    powers = xp.exp(x - x.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


OPERATION = Operation(
    idea="each row of Y is the softmax of the row of X",
    extents=("ROWS", "COLS"),
    inputs=(Array("X", "ROWS COLS"),),
    output=Array("Y", "ROWS COLS"),
    reference=softmax,
    flops="5*ROWS*COLS",
    tolerance=1e-5,
)
