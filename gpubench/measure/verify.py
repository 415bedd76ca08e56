"""Is the result right? Asked of every point before it is timed."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from gpubench.measure.operands import Reference

INTEGER_POISON = -(2**31) + 12345
"""What an integer output holds before the kernel runs: no product of the operands is likely it."""

ROUNDED_ONCE = 1.01
"""Times the unit roundoff: the sum that is rounded has errors of its own."""


def poison(output: Any) -> None:
    """Fill an output so that an element the kernel does not write is seen: NaN, or a sentinel."""
    output.fill(INTEGER_POISON if output.dtype.kind == "i" else np.nan)


def relative_error(
    xp: Any, output: Any, reference: Reference, result_roundoff: float = 0.0
) -> float:
    """Largest error of an element relative to ‖row of A‖·‖column of B‖ + √K·|element|.

    The first term bounds the partial sums of operands of random sign; the second those of operands
    of one sign, which grow to the result, and whose K roundings add up as √K (Higham, Accuracy and
    Stability of Numerical Algorithms, 2.8). A chained product adds what the errors of the first
    may make of it. Rounding the sum once to the result, by `result_roundoff` of the element, is not
    counted. NaN if any element is NaN. For integers: the largest difference modulo 2³².
    """
    if output.dtype.kind == "i":
        difference = output.astype(np.int64) - reference.parts[0]
        return float(xp.abs(difference).max())
    error = output.astype(np.float64)
    for part in reference.parts:
        error -= part
    error = xp.abs(error)
    if result_roundoff:
        limits: Any = ml_dtypes.finfo  # it has no types
        underflow = float(limits(output.dtype).smallest_subnormal) / 2
        allowed = ROUNDED_ONCE * result_roundoff * xp.abs(reference.parts[0]) + underflow
        error = xp.maximum(error - allowed, 0.0)
    scale = reference.row_norms * reference.column_norms
    scale += np.sqrt(reference.terms) * xp.abs(reference.parts[0])
    scale += reference.inherited
    # A zero row or column must give exact zeros: any error over the smallest number is huge.
    return float((error / xp.maximum(scale, np.finfo(np.float64).tiny)).max())


def why_wrong(error: float, limit: float) -> str | None:
    """None if right; the comparison is written so that NaN is wrong."""
    if not error <= limit:
        if np.isnan(error):
            return "the result holds NaN: an element was not written, or computed from garbage"
        if limit == 0:
            return f"the result differs from the exact integer product by up to {error:.0f}"
        return f"relative error {error:.2g}, tolerance {limit:.2g}"
    return None
