"""Right results of each operation are accepted, and every known kind of error is rejected."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import product as each
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from fakes import FakeBackend, cut, exact, point, product, why_wrong

from gpubench.engine.judge.rounding import choose_lines, find_rounding
from gpubench.engine.judge.verdict import WrongError
from gpubench.engine.judge.verify import (
    Check,
    errors_of,
    is_unchanged,
    is_unwritten,
    poison,
    relative_error,
)
from gpubench.engine.operands.make import make_inputs, make_reference
from gpubench.errors import LaunchError
from gpubench.model import CORE_DTYPES, OPERATIONS, PRECISIONS, Problem
from gpubench.plan.registry import KERNELS

FLOATS = ("float32", "float64")
PRODUCTS = tuple(op for op, operation in OPERATIONS.items() if operation.is_product)
ON_VECTORS = tuple(op for op in PRODUCTS if op != "gemm")

Operands = tuple[np.ndarray, np.ndarray]


def inputs(op: str, m: int, n: int, dtype: str, k: int = 1) -> Operands:
    a, b = make_inputs(Problem(op=op, m=m, n=n, k=k, dtype=dtype), 3)
    return a, b


def sizes(op: str) -> Iterator[tuple[int, int, int]]:
    if op == "gemm":
        return ((33, 31, k) for k in (1, 2, 17, 255, 4096))
    return iter([(1, 1, 1), (1, 9, 1), (9, 1, 1), (33, 31, 1), (1000, 1, 1), (700, 300, 1)])


def verdict(op: str, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> str | None:
    """Return why `c` is not the result, by the call that the runner makes."""
    assert c.dtype == a.dtype
    error = relative_error(np, c, make_reference(np, op, a, b))
    return why_wrong(error, PRECISIONS[str(a.dtype)].tolerance)


def one_after_the_other(op: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return a result with every product and sum rounded in order, as inexact as a right kernel."""

    def times(left: np.ndarray, right: np.ndarray) -> np.ndarray:
        total = np.zeros((left.shape[0], *right.shape[1:]), left.dtype)
        for k in range(left.shape[1]):
            total += np.multiply.outer(left[:, k], right[k])
        return total

    match op:
        case "gemv_t":
            return times(a.T, b)
        case "atax":
            return times(a.T, times(a, b))
        case _:
            return times(a, b)


@pytest.mark.parametrize("op", PRODUCTS)
def test_a_right_result_is_accepted_in_any_order_of_summation(op: str) -> None:
    for dtype, (m, n, k) in each(CORE_DTYPES, sizes(op)):
        a, b = inputs(op, m, n, dtype, k)
        for right in (product, one_after_the_other):
            assert verdict(op, a, b, right(op, a, b)) is None


@pytest.mark.parametrize("op", PRODUCTS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_a_right_result_of_positive_operands_or_equal_rows_is_accepted(dtype: str, op: str) -> None:
    a, b = inputs(op, *((700, 900) if op in ON_VECTORS else (33, 31)), dtype, k=4096)
    # Partial sums only grow, so rounding errors are largest.
    positive = np.abs(a), np.abs(b)
    # Equal rows have equal rounding errors, which add up in atax.
    equal = np.ascontiguousarray(np.broadcast_to(a[:1], a.shape)), b
    for operands in (positive, equal):
        assert verdict(op, *operands, one_after_the_other(op, *operands)) is None
    if op != "atax":
        assert verdict(op, *positive, a_typical_product_left_out(op, *positive))


@pytest.mark.parametrize("op", PRODUCTS)
@pytest.mark.parametrize("factor", [1e-70, 1e70])
def test_tiny_or_huge_operands_are_judged_like_others(factor: float, op: str) -> None:
    a, b = inputs(op, 40, 30, "float64", k=20)
    c = product(op, a * factor, b)
    assert verdict(op, a * factor, b, c) is None
    c.ravel()[3] *= 1 + 1e-9
    assert verdict(op, a * factor, b, c)


def test_zeros_must_give_exact_zeros() -> None:
    a, b = inputs("gemm", 4, 4, "float32", k=8)
    a[2] = 0
    right = a @ b
    assert verdict("gemm", a, b, right) is None
    right[2, 1] = 1e-30
    assert verdict("gemm", a, b, right)


def a_typical_product_left_out(op: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return a result in which an element lacks a product of median size.

    In atax, the element of the first product (A·x) lacks it.
    """
    if op == "gemv_t":
        return a_typical_product_left_out("gemv", a.T, b)
    c = a @ b
    # Products in the operands' dtype: int32 wraps as the sum does.
    products = a[len(a) // 2] * b.reshape(len(b), -1)[:, -1]
    typical = products[np.argsort(np.abs(products))[len(products) // 2]]
    c.reshape(len(c), -1)[len(c) // 2, -1:] -= typical
    return a.T @ c if op == "atax" else c


def last_term_left_out(op: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if op in {"gemm", "gemv"}:
        return product(op, a[:, :-1], b[:-1])
    return product(op, a[:-1], b[:-1] if op == "gemv_t" else b)


def one_element_off(op: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    c = product(op, a, b)
    c[-1] += 1
    return c


def last_element_not_written(op: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    right = product(op, a, b)
    c = np.empty_like(right)
    poison(c)
    c.ravel()[:-1] = right.ravel()[:-1]
    return c


WRONG = (a_typical_product_left_out, last_term_left_out, one_element_off, last_element_not_written)


@pytest.mark.parametrize("op", PRODUCTS)
@pytest.mark.parametrize("wrong", WRONG)
def test_the_smallest_mistake_is_rejected(
    wrong: Callable[[str, np.ndarray, np.ndarray], np.ndarray], op: str
) -> None:
    largest = (33, 31, 4096) if op == "gemm" else (300, 300, 1)
    for dtype, (m, n, k) in each(CORE_DTYPES, ((2, 3, 2), (17, 17, 17), largest)):
        a, b = inputs(op, m, n, dtype, k)
        assert verdict(op, a, b, wrong(op, a, b)), dtype


@pytest.mark.parametrize("op", ON_VECTORS)
def test_a_matrix_that_is_transposed_is_rejected(op: str) -> None:
    for dtype in CORE_DTYPES:
        a, x = inputs(op, 17, 17, dtype)
        assert verdict(op, a, x, product(op, np.ascontiguousarray(a.T), x))


FEWER_BITS: tuple[tuple[str, Callable[[np.ndarray], np.ndarray]], ...] = (
    ("float32", lambda values: cut(values, 11)),
    ("float32", lambda values: values.astype(np.float16).astype(np.float32)),
    ("float64", lambda values: values.astype(np.float32).astype(np.float64)),
)
"""Roundings of operands: to TF32, to half precision, and from float64 to float32."""


@pytest.mark.parametrize("op", PRODUCTS)
def test_operands_of_fewer_bits_are_rejected(op: str) -> None:
    for (dtype, fewer), k in each(FEWER_BITS, (1, 5, 255, 16384) if op == "gemm" else (1,)):
        a, b = inputs(op, 33, 31, dtype, k)
        assert verdict(op, a, b, product(op, fewer(a), fewer(b)))


@pytest.mark.parametrize("garbage", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", FLOATS)
def test_one_element_of_garbage_is_rejected(dtype: str, garbage: float) -> None:
    a, b = inputs("gemm", 33, 31, dtype, k=64)
    c = a @ b
    c[7, 30] = garbage
    assert verdict("gemm", a, b, c)


def test_an_integer_that_differs_by_a_multiple_of_the_sentinel_is_rejected() -> None:
    a, b = inputs("gemm", 3, 3, "int32", k=3)
    c = a @ b
    c[0, 0] = np.bitwise_xor(c[0, 0], np.int32(-(2**31)))
    assert verdict("gemm", a, b, c)


@pytest.mark.parametrize("op", ON_VECTORS)
def test_a_reference_is_far_more_exact_than_its_dtype(op: str) -> None:
    for dtype, (m, n) in each(FLOATS, [(1, 1), (1, 9), (9, 1), (33, 31), (130, 12)]):
        a, x = inputs(op, m, n, dtype)
        reference = make_reference(np, op, a, x)
        scale = reference.row_norms * reference.column_norms + reference.inherited
        errors = [
            abs(float(sum(Fraction(float(part[i])) for part in reference.parts) - value))
            for i, value in enumerate(exact(op, a, x))
        ]
        smallest = np.finfo(np.float64).tiny  # so that zeros have a bound too
        assert np.max(errors / np.maximum(scale, smallest)) <= (
            2**-58 if dtype == "float64" else 2**-44
        )


@pytest.mark.parametrize(
    ("error", "tolerance", "reason"),
    [
        (float("nan"), 1.0, "NaN"),
        (2.0, 1.0, "relative error 2, tolerance 1"),
        (0.5, 1e-6, "relative error 0.5, tolerance 1e-06"),
        (3.0, 0.0, "exact integer product by up to 3"),
        (1.0, 1.0, None),
        (0.0, 0.0, None),
    ],
)
def test_the_reason_says_what_is_wrong(error: float, tolerance: float, reason: str | None) -> None:
    why = why_wrong(error, tolerance)
    assert why is None if reason is None else reason in why


@pytest.mark.parametrize("later", [False, True], ids=["ours", "a user's"])
def test_the_result_of_the_previous_set_is_wrong(later: bool, tmp_path: Path) -> None:
    backend, folder = FakeBackend(), tmp_path if later else KERNELS
    at = replace(point(), variant=replace(point().variant, path=folder / "gemm" / "mine.py"))
    host = make_inputs(at.problem, 3)
    operands = backend.load(at.problem, host, cold=True)
    check = Check(np, at, operands, lambda: make_reference(np, "gemm", *host))
    check.start()
    for index in operands.rotation.take(2):
        operands.sets[index][-1][...] = host[0] @ host[1]
    if later:
        check.look()
    with pytest.raises(WrongError, match="relative error"):
        check.settle() if later else check.look()


def test_errors_in_bits_include_the_rounding_of_the_result_which_the_judge_allows() -> None:
    a, b = (np.full(shape, 1.0) for shape in ((2, 4), (4, 2)))
    reference = make_reference(np, "gemm", a, b)  # every element is 4, and its scale is 4 + √4·4
    exact = np.full((2, 2), 4.0)
    assert errors_of(np, exact, reference) == (0.0, 0.0, 0.0)
    off = exact.copy()
    off[0, 0] += 12 * 2.0**-10
    judged, largest, rms = errors_of(np, off, reference)
    assert (judged, largest) == (2.0**-10, 2.0**-10)
    assert rms == pytest.approx(2.0**-11)  # one of four elements has the error
    rounded = off.astype(ml_dtypes.bfloat16)
    assert errors_of(np, rounded, reference, 2.0**-8)[0] == 0.0
    assert errors_of(np, rounded, reference, 2.0**-8).largest == abs(float(rounded[0, 0]) - 4) / 12
    whole = np.full((2, 2), 4, np.int32)
    of_ints = make_reference(np, "gemm", a.astype(np.int32), b.astype(np.int32))
    assert errors_of(np, whole, of_ints) == (0.0, 0.0, 0.0)
    assert errors_of(np, np.full((2, 2), np.nan), reference).judged != 0


@pytest.mark.parametrize(
    ("op", "size"),
    [
        ("gemv", (2**16, 64)),
        ("gemv", (256, 2**16)),
        ("gemv_t", (2**16, 64)),
        ("atax", (128, 2**16)),
        ("gemm", (300, 1, 4096)),
        ("gemm", (1, 300, 4096)),
        ("gemm", (2**16, 16, 64)),
        ("gemm", (8, 10, 2**18)),
    ],
)
def test_rounded_operands_show_in_results_of_any_shape(op: str, size: tuple[int, ...]) -> None:
    m, n, k = (*size, 1)[:3]
    problem = Problem(op=op, m=m, n=n, k=k, dtype="float32")
    a, x = make_inputs(problem, 5)
    for operands, is_rounded in (((a, x), False), ((cut(a, 16), x), True)):
        output = product(op, *operands)
        rows = choose_lines(problem, len(output))
        assert bool(find_rounding(problem, (a, x), rows, output[rows]).which) == is_rounded


def test_the_errors_of_a_short_first_result_resemble_no_rounding() -> None:
    problem = Problem(op="atax", m=64, n=4096, k=1, dtype="float32")
    for seed in range(20):
        a, x = make_inputs(problem, seed)
        output = product("atax", a, x)
        rows = choose_lines(problem, len(output))
        assert find_rounding(problem, (a, x), rows, output[rows]).which == ""


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_a_reference_of_another_shape_is_an_error(dtype: str) -> None:
    a, b = np.ones((3, 3), dtype), np.ones((3, 1), dtype)
    reference = make_reference(np, "gemm", a, b)
    with pytest.raises(LaunchError, match=r"reference has the shape \(3, 1\), not \(3, 3\)"):
        errors_of(np, a @ a, reference)


@pytest.mark.parametrize("kind", ["int8", "int32", "uint8", "float16", "float8_e4m3fn"])
def test_outputs_of_each_type_can_hold_poison(kind: str) -> None:
    output = np.zeros(4, kind)
    poison(output)
    assert is_unwritten(np, output)
    assert is_unchanged(np, output)
    output[2] = 1
    assert not is_unchanged(np, output)
    assert not is_unwritten(np, output)


def test_a_result_of_float32_may_not_be_rounded_to_the_operands_type() -> None:
    a, b = make_inputs(Problem(op="gemm", m=9, n=9, k=9, dtype="float16"), 1)
    reference = make_reference(np, "gemm", a, b)
    right = a.astype(np.float32) @ b.astype(np.float32)
    for output in (right, right.astype(np.float16)):
        assert relative_error(np, output, reference, 2.0**-11) <= PRECISIONS["float16"].tolerance
    rounded = right.astype(np.float16).astype(np.float32)
    assert relative_error(np, rounded, reference, 2.0**-11) > PRECISIONS["float16"].tolerance


@pytest.mark.filterwarnings("error")
def test_huge_errors_overflow_nothing() -> None:
    a, b = np.zeros((1, 1)), np.ones((1, 1))
    reference = make_reference(np, "gemm", a, b)
    assert errors_of(np, np.full((1, 1), 0.5), reference).rms > 1e300
