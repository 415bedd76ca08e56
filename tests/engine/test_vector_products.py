"""References and verdicts of gemv, gemv_t and atax."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from fakes import exact, product, why_wrong

from gpubench.engine.judge.verify import poison, relative_error
from gpubench.engine.operands import Reference, make_inputs, make_reference
from gpubench.model import CORE_DTYPES, PRECISIONS, Problem

OPS = ("gemv", "gemv_t", "atax")
FLOATS = ("float32", "float64")
SHAPES = [(1, 1), (1, 9), (9, 1), (33, 31), (16, 130), (130, 12)]


def inputs(op: str, m: int, n: int, dtype: str, seed: int = 3) -> tuple[np.ndarray, np.ndarray]:
    a, x = make_inputs(Problem(op=op, m=m, n=n, dtype=dtype), seed)
    return a, x


def scale(reference: Reference) -> np.ndarray:
    """What errors are divided by; the inherited share alone for zeros."""
    own = reference.row_norms * reference.column_norms
    return np.maximum(own + reference.inherited, np.finfo(np.float64).tiny)


def test_a_reference_is_far_more_exact_than_its_dtype() -> None:
    for dtype, (m, n), op in itertools.product(FLOATS, SHAPES, OPS):
        a, x = inputs(op, m, n, dtype)
        reference = make_reference(np, op, a, x)
        assert {part.shape for part in reference.parts} == {
            Problem(op=op, m=m, n=n, dtype=dtype).output_shape
        }
        errors = [
            abs(float(sum(Fraction(float(part[i])) for part in reference.parts) - value))
            for i, value in enumerate(exact(op, a, x))
        ]
        assert np.max(errors / scale(reference)) <= (2**-58 if dtype == "float64" else 2**-44)


def verdict(op: str, a: np.ndarray, x: np.ndarray, y: np.ndarray) -> str | None:
    assert y.dtype == a.dtype
    error = relative_error(np, y, make_reference(np, op, a, x))
    return why_wrong(error, PRECISIONS[str(a.dtype)].tolerance)


def one_after_the_other(op: str, a: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Every product and sum rounded, in order: the worst that a right kernel does."""

    def times(matrix: np.ndarray, vector: np.ndarray) -> np.ndarray:
        total = np.zeros(matrix.shape[0], matrix.dtype)
        for k in range(matrix.shape[1]):
            total += matrix[:, k] * vector[k]
        return total

    if op == "gemv":
        return times(a, x)
    return times(a.T, x if op == "gemv_t" else times(a, x))


def test_a_right_result_is_accepted_in_any_order_of_summation() -> None:
    for dtype, (m, n), op, right in itertools.product(
        CORE_DTYPES,
        [*SHAPES, (1000, 1), (1, 1000), (700, 300)],
        OPS,
        [product, one_after_the_other],
    ):
        a, x = inputs(op, m, n, dtype)
        assert verdict(op, a, x, right(op, a, x)) is None


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_a_right_result_of_positive_operands_or_equal_rows_is_accepted(dtype: str, op: str) -> None:
    a, x = inputs(op, 700, 900, dtype)
    positive = np.abs(a), np.abs(x)
    # Equal rows have equal roundings: in atax they add up instead of averaging out.
    equal = np.ascontiguousarray(np.broadcast_to(a[:1], a.shape)), x
    for operands in (positive, equal):
        assert verdict(op, *operands, one_after_the_other(op, *operands)) is None


@pytest.mark.parametrize("op", OPS)
def test_a_right_result_of_tiny_or_huge_operands_is_accepted_and_a_wrong_one_is_not(
    op: str,
) -> None:
    a, x = inputs(op, 40, 30, "float64")
    for factor in (1e-70, 1e70):
        y = product(op, a * factor, x)
        assert verdict(op, a * factor, x, y) is None
        y[3] *= 1 + 1e-9
        assert verdict(op, a * factor, x, y)


def last_term_left_out(op: str, a: np.ndarray, x: np.ndarray) -> np.ndarray:
    return (
        product(op, a[:-1], x[:-1] if op == "gemv_t" else x)
        if op != "gemv"
        else (a[:, :-1] @ x[:-1])
    )


def untransposed(op: str, a: np.ndarray, x: np.ndarray) -> np.ndarray:
    return product(op, np.ascontiguousarray(a.T), x)


def one_element_off(op: str, a: np.ndarray, x: np.ndarray) -> np.ndarray:
    y = product(op, a, x)
    y[-1] += 1
    return y


def last_element_not_written(op: str, a: np.ndarray, x: np.ndarray) -> np.ndarray:
    right = product(op, a, x)
    y = np.empty_like(right)
    poison(y)
    y[:-1] = right[:-1]
    return y


def one_product_of_the_first_half_left_out(_op: str, a: np.ndarray, x: np.ndarray) -> np.ndarray:
    b = a @ x
    i = len(b) // 2
    j = np.argsort(np.abs(a[i] * x))[len(x) // 2]
    b[i : i + 1] -= a[i, j : j + 1] * x[j]
    return a.T @ b


def test_a_wrong_result_is_rejected() -> None:
    for dtype, n, op, wrong in itertools.product(
        CORE_DTYPES,
        [2, 17, 300],
        OPS,
        [last_term_left_out, untransposed, one_element_off, last_element_not_written],
    ):
        a, x = inputs(op, n, n, dtype)
        assert verdict(op, a, x, wrong(op, a, x))


def test_what_atax_hands_on_leaves_no_room_for_a_product_left_out() -> None:
    for dtype, n in itertools.product(CORE_DTYPES, [2, 17, 300]):
        a, x = inputs("atax", n, n, dtype)
        assert verdict("atax", a, x, one_product_of_the_first_half_left_out("atax", a, x))


@pytest.mark.parametrize("op", OPS)
def test_float64_computed_in_float32_is_rejected(op: str) -> None:
    a, x = inputs(op, 300, 200, "float64")
    single = product(op, a.astype(np.float32), x.astype(np.float32)).astype(np.float64)
    assert verdict(op, a, x, single)
