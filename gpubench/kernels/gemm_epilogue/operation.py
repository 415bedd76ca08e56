"""Products with the operations that follow a product in a model.

The result is C = act(A·B + bias) + residual. A kernel computes the sum over K, then adds the
column's bias, applies the activation, and adds the residual. All of this is computed in the type of
the sum, and only C is rounded to its own type. GELU is the form with tanh. An operation may have no
activation (`bias`), or no residual.
"""

import math
from collections.abc import Callable
from itertools import product
from typing import Any, NamedTuple

from gpubench.model.operation import Array, Operation


class Form(NamedTuple):
    """The operations after a product with a bias."""

    act: str  # the activation, or "bias" for none
    has_residual: bool

    @property
    def suffix(self) -> str:
        """End of the operation's name: `_residual`, or empty without a residual."""
        return "_residual" if self.has_residual else ""


FORMS = {
    f"gemm_{form.act}{form.suffix}": form
    for form in map(Form._make, product(("bias", "relu", "gelu", "silu"), (False, True)))
}
"""Maps the name of each operation to its form."""

ROOT = math.sqrt(2 / math.pi)

ACTS: dict[str, Callable[[Any, Any], Any]] = {
    "bias": lambda _xp, z: z,
    "relu": lambda xp, z: xp.maximum(z, 0),
    "gelu": lambda xp, z: 0.5 * z * (1 + xp.tanh(ROOT * z * (1 + 0.044715 * z * z))),
    "silu": lambda xp, z: 0.5 * z * (1 + xp.tanh(0.5 * z)),  # z / (1 + exp(-z))
}
"""Maps each activation to its function of (xp, array). `xp` is the module of the array."""


def _scale(xp: Any, a: Any, b: Any, *added: Any) -> Any:
    """Return ‖row of A‖·‖column of B‖ + |bias| + |residual| for each element of C.

    The scale bounds the size of the sum before the activation. The activation hardly enlarges
    errors.
    """
    norms = xp.sqrt(xp.square(a).sum(axis=1))[:, None] * xp.sqrt(xp.square(b).sum(axis=0))
    return norms + sum(map(xp.abs, added))


def _operation(form: Form) -> Operation:
    act, is_sum = ACTS[form.act], form.act == "bias"

    def reference(xp: Any, a: Any, b: Any, bias: Any, residual: Any = 0.0) -> Any:
        return act(xp, a @ b + bias) + residual

    residuals = (Array("residual", "M N"),) if form.has_residual else ()
    inputs = (Array("A", "M K"), Array("B", "K N"), Array("bias", "N"), *residuals)
    sums = "A (M×K) · B (K×N) + bias (N)"
    sums = sums if is_sum else f"{form.act}({sums})"
    return Operation(
        idea=f"C (M×N) = {sums}{' + residual (M×N)' if form.has_residual else ''}",
        extents=("M", "N", "K"),
        inputs=inputs,
        output=Array("C", "M N"),
        reference=reference,
        flops="2*M*N*K",
        linear_in=("A", "B") if is_sum else (),
        added=tuple(array.name for array in inputs[2:]) if is_sum else (),
        terms="K",
        scale=_scale,
    )


OPERATION = {name: _operation(form) for name, form in FORMS.items()}
