"""A product with what follows it in a model: C = act(A·B + bias) + residual.

The order of operations: the sum over K; the bias of the column; the activation; the residual. All
are computed in the type of the sum, and only C is rounded to its own type. GELU is the form with
tanh. Each operation leaves out the activation, the residual, or neither.
"""

import math
from collections.abc import Callable
from itertools import product
from typing import Any, NamedTuple

from gpubench.model.operation import Array, Operation


class Form(NamedTuple):
    """What follows a product with a bias."""

    act: str  # the activation, or "bias" for none
    has_residual: bool

    @property
    def suffix(self) -> str:
        """End of the names of what adds a residual."""
        return "_residual" if self.has_residual else ""


FORMS = {
    f"gemm_{form.act}{form.suffix}": form
    for form in map(Form._make, product(("bias", "relu", "gelu", "silu"), (False, True)))
}
"""The operations by name."""

_ACTS: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "bias": ("", lambda _xp, z: z),
    "relu": ("relu", lambda xp, z: xp.maximum(z, 0)),
    "gelu": (
        "gelu",
        lambda xp, z: 0.5 * z * (1 + xp.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3))),
    ),
    "silu": ("silu", lambda xp, z: 0.5 * z * (1 + xp.tanh(0.5 * z))),  # z / (1 + exp(-z))
}
"""The name of each activation in formulas, and the activation."""


def _scale(xp: Any, a: Any, b: Any, *added: Any) -> Any:
    """Return what bounds the size of the sum before the activation, which hardly enlarges errors.

    ‖row of A‖·‖column of B‖ + |bias| + |residual|.
    """
    norms = xp.sqrt(xp.square(a).sum(axis=1))[:, None] * xp.sqrt(xp.square(b).sum(axis=0))
    return norms + sum(map(xp.abs, added))


def _operation(form: Form) -> Operation:
    name, act = _ACTS[form.act]

    def reference(xp: Any, a: Any, b: Any, bias: Any, residual: Any = 0.0) -> Any:
        return act(xp, a @ b + bias) + residual

    residuals = (Array("residual", "M N"),) if form.has_residual else ()
    inputs = (Array("A", "M K"), Array("B", "K N"), Array("bias", "N"), *residuals)
    sums = f"{name}(A (M×K) · B (K×N) + bias (N))" if name else "A (M×K) · B (K×N) + bias (N)"
    return Operation(
        idea=f"C (M×N) = {sums}{' + residual (M×N)' if form.has_residual else ''}",
        extents=("M", "N", "K"),
        inputs=inputs,
        output=Array("C", "M N"),
        reference=reference,
        flops="2*M*N*K",
        linear_in=() if name else ("A", "B"),
        added=() if name else tuple(array.name for array in inputs[2:]),
        terms="K",
        scale=_scale,
    )


OPERATION = {name: _operation(form) for name, form in FORMS.items()}
