"""Names the cause of a wrong result, if the result shows the cause."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpubench.engine.judge.rounding import can_show_rounding, find_rounding
from gpubench.engine.judge.verdict import why_inaccurate, why_rounded
from gpubench.engine.judge.verify import is_unwritten, rows_error, why_unwritten
from gpubench.engine.operands.make import make_reference
from gpubench.model import Problem

UNRELATED = 0.1
"""Largest correlation of an unrelated result with the right result. The correlation of 1,024 pairs
of random numbers is below 0.1 in 998 of 1,000 cases."""

ENOUGH = 1024  # minimum number of elements at which `UNRELATED` is used

SAME = 2e-2  # largest relative difference of results that are the same up to roundings

NARROW = {"float16 or TF32": 11, "bfloat16": 8}
"""Narrow types in which a kernel may compute, with the number of bits of their significands."""


@np.errstate(invalid="ignore", over="ignore")  # operands may have a NaN, or be all zeros
def why_wrong_rows(
    problem: Problem,
    inputs: Sequence[NDArray[Any]],
    rows: Sequence[int],
    output: NDArray[Any],
    earlier: Sequence[NDArray[Any]] = (),
    *,
    finds_rounding: bool = False,
    is_transposed: bool = False,
) -> tuple[str, float]:
    """Return why some rows of a result are wrong, and the largest error in these rows.

    The reason is an empty text if the rows are right. `inputs` are the operands in host memory, and
    `earlier` are the operands of the previous launch into the same output. For operations on
    vectors, `output` is the complete result, because the result is short. If `is_transposed` is
    true, the reason calls the first operand B, and the second operand A.
    """
    error = rows_error(np, problem, inputs, rows, output)
    if not (reason := why_inaccurate(error, problem.tolerance)):
        if finds_rounding and can_show_rounding(problem):
            rounding = find_rounding(problem, inputs, rows, output)
            names = {"A": "B", "B": "A"} if is_transposed else {}
            which = names.get(rounding.which, rounding.which)
            reason = why_rounded(*rounding._replace(which=which))
        return reason, error
    old_error = rows_error(np, problem, earlier, rows, output) if earlier else math.inf
    if old_error <= problem.tolerance and output.any():
        return "the output has the result of an earlier launch's operands: a replay", error
    part = inputs[0][list(rows)] if problem.operation.is_by_rows else inputs[0]
    right = make_reference(np, problem.op, part, inputs[1]).parts[0]
    return cause_of(right, output) or reason, error


def cause_of(right: NDArray[Any], output: NDArray[Any]) -> str:
    """Return the cause of a wrong result, or an empty text if no known cause fits the result."""
    if is_unwritten(np, output):
        return why_unwritten(output)
    right, wide = right.astype(np.float64), output.astype(np.float64)
    if not wide.any():
        return "the result is all zeros"
    if not np.isfinite(wide).all():
        return ""  # `why_inaccurate` returns a reason that names NaN
    other = _other_operation(right, wide) if right.ndim > 1 else ""
    return other or _unrelated_or_narrow(right, wide, is_integer=output.dtype.kind == "i")


def _other_operation(right: NDArray[np.float64], output: NDArray[np.float64]) -> str:
    """Return a text that names the change, such as ReLU, that a kernel made to the product.

    The text is empty if this function recognizes no change.
    """
    for what, other in (
        ("with its negative elements as zeros, as ReLU does", np.maximum(right, 0)),
        ("divided by its sum over the row, as softmax does", _softmax(right)),
    ):
        if np.abs(output - other).max() <= SAME * (np.abs(other).max() or 1.0):
            return f"the result is not the product, but the product {what}"
    difference = output - right
    for line, axis in (("row", 1), ("column", 0)):
        spread = difference - difference.mean(axis=axis, keepdims=True)
        if right.shape[axis] > 1 and np.abs(spread).max() <= SAME * np.abs(difference).max():
            return f"the same number is added to all elements of a {line}: a bias?"
    return ""


def _unrelated_or_narrow(
    right: NDArray[np.float64], output: NDArray[np.float64], *, is_integer: bool
) -> str:
    """Return a text if a result is unrelated to the right result, or has only a few right bits.

    The text is empty if neither is the case.
    """
    lengths = float(np.linalg.norm(right) * np.linalg.norm(output))
    cosine = float(np.vdot(right, output)) / (lengths or 1.0)
    if abs(cosine) < UNRELATED and right.size >= ENOUGH:
        return f"the result does not look like a product of the operands (correlation {cosine:.2f})"
    error = float(np.abs(output - right).max() / (np.abs(right).max() or 1.0))
    if is_integer or not 0 < error < SAME:
        return ""
    bits = round(-np.log2(error))
    alike = [name for name, width in NARROW.items() if abs(width - bits) <= 1]
    also = f": operands or sums were {' or '.join(alike)}?" if alike else ""
    return f"the result keeps about {bits} bits{also}"


def _softmax(right: NDArray[np.float64]) -> NDArray[np.float64]:
    powers = np.exp(right - right.max(axis=-1, keepdims=True))
    result: NDArray[np.float64] = powers / powers.sum(axis=-1, keepdims=True)
    return result
