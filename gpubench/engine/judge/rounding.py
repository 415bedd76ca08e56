"""Finds out from the errors of a timed result whether a kernel rounded an operand.

A kernel can recognise the operands of an exact probe by their zeros, and a tolerance that grows
with K accepts rounded operands at a large K. So the errors of some results are compared with the
errors that rounding an operand would cause. In a right kernel, these two kinds of errors are
independent, because the roundings of its sums depend on all bits of both operands. The cosine of
the angle between the errors is then about ±1/√n for n results.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from secrets import randbits
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpubench.engine.judge.sum_width import extents
from gpubench.engine.operands.make import product
from gpubench.model import Precision, Problem

EDGE = 64  # number of random rows, and of columns, of a product whose errors are compared
MAX_RESULTS = 1024  # maximum number of elements of a vector whose errors are compared

MAX_ELEMENTS = 2**21  # maximum number of elements in the chosen rows of the first operand

MIN_RESULTS = 128
"""Minimum number of results that are chosen, even if their rows have more than `MAX_ELEMENTS`
elements. The errors of `LEAST_DEVIATIONS`² results, which are 64, cannot show a rounding."""

MAX_LONG_ELEMENTS = 2**25  # maximum number of elements in these rows; the comparison takes 2 s

LEAST_DEVIATIONS = 8.0
"""Smallest cosine that counts, in multiples of 1/√n, which is the typical cosine of independent
errors. The cosine of right kernels was at most 3/√n (sums of 64 to 16,384 products, in four
orders). The cosine of kernels that rounded operands to 13 to 20 bits was at least 10/√n, for K up
to 16,384 and n = 4,096."""

LEAST_K = 64
"""Minimum K of a product that is examined. At a smaller K, the tolerance already rejects rounded
operands, and the roundings of few products may resemble the roundings of operands."""

WIDTHS = range(-11, -2)
"""Widths of a rounded operand that are tried, in bits relative to its full significand. The
tolerance already rejects smaller widths. Larger widths differ too little from the full
significand."""

FLUSHED = (9, 11, 13, 15)  # values of i: a kernel may replace elements below 2⁻ⁱ by 0

LEAST_BITS = 4

WIDE_BITS = 32  # minimum bits of examined operands; for fewer bits, the tolerance suffices


FINISHED = [("M", "K"), ("K", "N"), ("M", "N")]
"""Extents of A, B and C of an operation that finishes a product with other operands."""

MIN_SHARE = 0.75
"""Minimum share of the results that show a rounded product. Of the results of cuBLASLt's epilogues
with GELU, 86 % and more equal the results of rounded products. The rest are just beside them,
because the library's GELU is approximate."""


class RoundedOperand(NamedTuple):
    """The rounding of an operand that explains the errors of a result best."""

    which: str = ""  # the operand; empty if the errors resemble no rounding
    width: str = ""
    cosine: float = 0.0


def can_show_rounding(problem: Problem) -> bool:
    """Whether a result may stay within the tolerance although a kernel rounded an operand."""
    if not problem.operation.is_product:
        return False
    return not problem.precision.is_integer and problem.precision.bits >= WIDE_BITS


def choose_lines(problem: Problem, count: int) -> list[int]:
    """Choose random rows or columns of a result, and return their indices.

    At most `EDGE` rows or columns of a matrix are chosen, or `MAX_RESULTS` elements of a vector.
    More rows are chosen if there are few columns, and more columns if there are few rows.
    """
    rows, columns, depth = extents(problem)
    others = min(rows, columns)  # 1 for a vector
    number = min(max(EDGE, MAX_RESULTS // others), count, MAX_ELEMENTS // depth)
    min_lines = max(EDGE // 4, MIN_RESULTS // others)
    number = max(number, min(min_lines, count, MAX_LONG_ELEMENTS // depth))
    rng = np.random.default_rng(randbits(128))  # SystemRandom takes twenty times as long
    chosen: list[int] = np.sort(rng.choice(count, number, replace=False)).tolist()
    return chosen


def finishes_product(problem: Problem) -> bool:
    """Whether other operands finish a product A·B, and only the result is rounded.

    An example is act(A·B + bias) in bfloat16.
    """
    operation = problem.operation
    shapes = [array.dimensions for array in operation.inputs]
    is_of_product = [*shapes[:2], operation.output.dimensions] == FINISHED
    others = [*chain(*shapes[2:])]
    needs_k = any("K" in extent for extent in others)  # such as K/128
    return is_of_product and bool(others) and not needs_k and problem.precision.result_roundoff > 0


def why_rounded_early(
    problem: Problem, inputs: Sequence[NDArray[Any]], rows: Sequence[int], output: NDArray[Any]
) -> str:
    """Return a text if some rows of a wrong result show a product that was rounded too early.

    The problem must be one that `finishes_product`. `inputs` are the operands in host memory, and
    `output` has only these rows. The text is empty if the errors have other causes.
    """
    operation, result = problem.operation, problem.precision.result
    chosen = {"M": rows, "N": choose_lines(problem, problem.n), "K": range(problem.k)}
    left, right, *others = (
        values[np.ix_(*(chosen[extent] for extent in array.dimensions))].astype(np.float64)
        for values, array in zip(inputs, operation.inputs, strict=True)
    )
    sums = left @ right

    def share_of_equal(product: NDArray[np.float64]) -> float:
        """Return the share of results that equal the results of this product."""
        expected = operation.reference(np, product, np.eye(product.shape[1]), *others)
        return float((output[:, chosen["N"]] == expected.astype(result)).mean())

    rounded = share_of_equal(sums.astype(result).astype(np.float64))
    if rounded < MIN_SHARE or rounded <= share_of_equal(sums):
        return ""
    return f"the product was rounded to {result} before the other operands were applied"


def find_rounding(
    problem: Problem, inputs: Sequence[NDArray[Any]], rows: Sequence[int], output: NDArray[Any]
) -> RoundedOperand:
    """Return the rounding of an operand that explains the errors in some rows of a result best.

    `inputs` are the operands in host memory, and `output` has only these rows. If the result is a
    vector, each element counts as a row.
    """
    first, second = inputs
    chosen = choose_lines(problem, len(rows))
    rows, output = [rows[index] for index in chosen], output[chosen]
    if problem.operation.is_by_rows:
        columns = choose_lines(problem, problem.n)
        first, second, output = first[rows], second[:, columns], output[:, columns]
    else:
        if problem.operation.is_chain:
            second = (first.astype(np.float64) @ second).astype(first.dtype)
        first = (first.T if problem.operation.first_is_transposed else first)[rows]
        second, output = second[:, None], output.reshape(-1, 1)
    if first.shape[1] < LEAST_K:
        return RoundedOperand()
    parts = product(np, first, second).parts
    errors = output.astype(np.float64)
    for part in parts:
        errors = errors - part
    # Sums that truncate have errors in proportion to the result. This part is subtracted.
    errors -= parts[0] * _ratio((errors * parts[0]).sum(), (parts[0] ** 2).sum())
    size = float(np.sqrt((errors**2).sum()))
    if not size:
        return RoundedOperand()
    errors = (errors / size).astype(first.dtype)
    # In a chain, B is the first result. Its own errors are errors of the second result, which then
    # has no more independent errors than B has elements.
    of_b = min(output.size, second.size) if problem.operation.is_chain else output.size
    sides = (
        ("A", first, errors @ second.T, (second**2).sum(axis=1), output.size),
        ("B", second, first.T @ errors, (first**2).sum(axis=0)[:, None], of_b),
    )
    return max(
        (
            RoundedOperand(which, width, cosine)
            for which, values, gradient, squares, independent in sides
            for width, cosine in _cosines(values, gradient, squares, problem.precision)
            if cosine > LEAST_DEVIATIONS / independent**0.5
        ),
        key=lambda rounding: rounding.cosine,
        default=RoundedOperand(),
    )


def _cosines(
    values: NDArray[Any], gradient: NDArray[Any], squares: NDArray[Any], precision: Precision
) -> Iterator[tuple[str, float]]:
    """Yield the name of each rounding, and how well the rounding explains the result's errors.

    The measure is the cosine of the angle between the errors that the rounding causes and the
    result's errors. `gradient` is the sum of the result's errors times the other operand, and
    `squares` is the sum of the other operand's squares. So a change of the operand changes the
    result by a vector of the length √Σ(change²·squares).
    """
    own_bits = np.finfo(values.dtype).nmant + 1
    allowed = precision.input_roundoff
    bits = round(-np.log2(allowed)) if allowed else own_bits
    for kept in (bits + width for width in WIDTHS if bits + width >= LEAST_BITS):
        scaled = values * values.dtype.type(2.0 ** (own_bits - kept) + 1)
        change = scaled - (scaled - values) - values
        along = np.vdot(gradient, change)
        yield f"{kept} bits", abs(_ratio(along, np.sqrt((change * change * squares).sum())))
    magnitudes, along, lengths = np.abs(values), gradient * values, values * values * squares
    for exponent in FLUSHED:
        small = magnitudes < 2.0**-exponent
        length = np.sqrt(lengths[small].sum())
        yield f"0 below 2^-{exponent}", abs(_ratio(along[small].sum(), length))


def _ratio(part: Any, whole: Any) -> float:
    return float(part / whole) if whole else 0.0
