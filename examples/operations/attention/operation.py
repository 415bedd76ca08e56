"""Causal attention of one head."""

from typing import Any

from gpubench.model import Array, Operation


def attention(xp: Any, q: Any, k: Any, v: Any) -> Any:
    scores = q @ k.T / q.shape[1] ** 0.5
    scores = xp.where(xp.tri(len(q), dtype=bool), scores, -xp.inf)  # no row uses later rows
    powers = xp.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True) @ v


OPERATION = Operation(
    idea="O = softmax(Q·Kᵀ/√D, causal) · V, of one head",
    extents=("S", "D"),
    inputs=(Array("Q", "S D"), Array("K", "S D"), Array("V", "S D")),
    output=Array("O", "S D"),
    reference=attention,
    flops="2*S*(S+1)*D",
    linear_in=("V",),
    tolerance=1e-5,
    scale=lambda xp, _q, _k, v: xp.abs(v).max(),
)
