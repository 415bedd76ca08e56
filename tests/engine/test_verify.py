"""Right results are accepted, and every known way to be wrong is rejected."""

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from fakes import cut, why_wrong

from gpubench.engine.judge.verify import poison, relative_error
from gpubench.engine.operands import make_inputs, make_reference
from gpubench.model import CORE_DTYPES, PRECISIONS, Problem

FLOATS = ("float32", "float64")
DEPTHS = (1, 2, 5, 17, 255, 4096)


def inputs(m: int, n: int, k: int, dtype: str, seed: int = 3) -> tuple[np.ndarray, np.ndarray]:
    a, b = make_inputs(Problem(op="gemm", m=m, n=n, k=k, dtype=dtype), seed)
    return a, b


def verdict(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> str | None:
    """Why `c` is not a·b, as the runner asks it."""
    assert c.dtype == a.dtype
    error = relative_error(np, c, make_reference(np, "gemm", a, b))
    return why_wrong(error, PRECISIONS[str(a.dtype)].tolerance)


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.matmul(a, b)


def one_after_the_other(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Every product rounded, every sum rounded, in order: what a naive kernel does."""
    c = np.zeros((a.shape[0], b.shape[1]), a.dtype)
    for k in range(a.shape[1]):
        c += a[:, k, None] * b[None, k]
    return c


def backwards(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return one_after_the_other(a[:, ::-1], b[::-1])


def in_tiles(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    c = np.zeros((a.shape[0], b.shape[1]), a.dtype)
    for k in range(0, a.shape[1], 16):
        c += one_after_the_other(a[:, k : k + 16], b[k : k + 16])
    return c


RIGHT = (product, one_after_the_other, backwards, in_tiles)


def test_a_right_result_is_accepted_in_any_order_of_summation() -> None:
    for dtype, k, right in itertools.product(CORE_DTYPES, DEPTHS, RIGHT):
        a, b = inputs(33, 31, k, dtype)
        assert verdict(a, b, right(a, b)) is None


def test_a_right_result_of_positive_operands_is_accepted() -> None:
    for dtype, k, right in itertools.product(FLOATS, DEPTHS, RIGHT):
        # Partial sums only grow, so roundings weigh most.
        a, b = (np.abs(operand) for operand in inputs(33, 31, k, dtype))
        assert verdict(a, b, right(a, b)) is None


def test_a_right_result_of_tiny_or_huge_operands_is_accepted() -> None:
    a, b = inputs(9, 9, 64, "float64")
    for scale in (1e-100, 1e100):
        assert verdict(a * scale, b, one_after_the_other(a * scale, b)) is None


def test_zeros_must_give_exact_zeros() -> None:
    a, b = inputs(4, 4, 8, "float32")
    a[2] = 0
    right = product(a, b)
    assert verdict(a, b, right) is None
    right[2, 1] = 1e-30
    assert verdict(a, b, right)


def typical_product_left_out(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """One element of C lacks one of its K products, one of middling size."""
    c = product(a, b)
    i, j = a.shape[0] - 1, b.shape[1] // 2
    # Products in the operands' dtype: int32 wraps as the sum does.
    products = a[i] * b[:, j]
    c[i, j : j + 1] -= np.sort(np.abs(products))[len(products) // 2]
    return c


def last_step_left_out(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return product(a[:, :-1], b[:-1])


def one_element_off(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    c = product(a, b)
    c[-1, -1] += 1
    return c


WRONG_ANYWHERE = (typical_product_left_out, last_step_left_out, one_element_off)


def test_the_smallest_mistake_is_rejected() -> None:
    for dtype, k, wrong in itertools.product(CORE_DTYPES, DEPTHS, WRONG_ANYWHERE):
        a, b = inputs(33, 31, k, dtype)
        assert verdict(a, b, wrong(a, b))


FEWER_BITS: tuple[tuple[str, Callable[[np.ndarray], np.ndarray]], ...] = (
    ("float32", lambda values: cut(values, 11)),
    ("float32", lambda values: values.astype(np.float16).astype(np.float32)),
    ("float64", lambda values: values.astype(np.float32).astype(np.float64)),
)
"""As tensor cores take float32 for tf32, half precision, and float64 in float32."""


def test_operands_of_fewer_bits_are_rejected() -> None:
    for (dtype, fewer), k in itertools.product(FEWER_BITS, [*DEPTHS, 16384]):
        a, b = inputs(33, 31, k, dtype)
        assert verdict(a, b, product(fewer(a), fewer(b)))


@pytest.mark.parametrize("garbage", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", FLOATS)
def test_one_element_of_garbage_is_rejected(dtype: str, garbage: float) -> None:
    a, b = inputs(33, 31, 64, dtype)
    c = product(a, b)
    c[7, 30] = garbage
    assert verdict(a, b, c)


@pytest.mark.parametrize("dtype", CORE_DTYPES)
def test_poison_is_wrong_everywhere(dtype: str) -> None:
    c = product(*inputs(5, 7, 3, dtype))
    poison(c)
    assert not np.any(c == product(*inputs(5, 7, 3, dtype)))


def test_an_integer_that_differs_by_a_multiple_of_the_sentinel_is_rejected() -> None:
    a, b = inputs(3, 3, 3, "int32")
    c = product(a, b)
    c[0, 0] = np.bitwise_xor(c[0, 0], np.int32(-(2**31)))
    assert verdict(a, b, c)


def test_nan_is_no_error_within_tolerance() -> None:
    assert why_wrong(float("nan"), 1.0)
    assert why_wrong(2.0, 1.0)
    assert why_wrong(1.0, 1.0) is None
    assert why_wrong(0.0, 0.0) is None


def test_the_reason_says_what_is_wrong() -> None:
    assert "NaN" in why_wrong(float("nan"), 1e-6)
    assert why_wrong(0.5, 1e-6) == "relative error 0.5, tolerance 1e-06"
    assert "exact integer product by up to 3" in why_wrong(3.0, 0.0)


def test_integers_have_no_tolerance_and_precision_sets_the_floats() -> None:
    assert PRECISIONS["int32"].tolerance == 0
    assert PRECISIONS["float64"].tolerance < 1e-14 < PRECISIONS["float32"].tolerance < 1e-5
