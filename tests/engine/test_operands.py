"""A seed determines operands, and references agree with exact arithmetic."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from fakes import exact, product, wrapped
from fakes import gemm as problem
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubench.backends.rotation import operand_factors
from gpubench.engine.operands import make as module
from gpubench.engine.operands.make import exceeds_range, make_inputs, make_reference
from gpubench.model import CORE_DTYPES, OPERATIONS, Fill, Problem


def worst_error(a: np.ndarray, b: np.ndarray) -> float:
    """Return the reference's largest error relative to ‖row of A‖·‖column of B‖, by exact sums."""
    reference = make_reference(np, "gemm", a, b)
    right = exact("gemm", a, b)
    worst = 0.0
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            scale_squared = sum(Fraction(x) ** 2 for x in a[i].tolist()) * sum(
                Fraction(x) ** 2 for x in b[:, j].tolist()
            )
            error = sum(Fraction(float(part[i, j])) for part in reference.parts) - right[i, j]
            if error:
                worst = max(worst, float(error**2 / scale_squared) ** 0.5)
    return worst


def test_the_reference_of_float64_holds_for_operands_of_very_different_sizes() -> None:
    a, b = make_inputs(problem(5, 7, 33, "float64"), 1)
    assert worst_error(a * 1e100, b * 1e-90) <= 2**-60
    # Elements of a matrix may differ too. Errors count relative to the largest sum.
    a[0] *= 1e-3
    assert worst_error(a, b) <= 2**-50


int32s = st.integers(-(2**31), 2**31 - 1)


@given(st.data(), st.integers(1, 4), st.integers(1, 4), st.integers(1, 9))
def test_the_reference_of_int32_wraps_exactly(data: st.DataObject, m: int, n: int, k: int) -> None:
    a, b = (
        np.array(data.draw(st.lists(int32s, min_size=size, max_size=size)), np.int32)
        for size in (m * k, k * n)
    )
    a, b = a.reshape(m, k), b.reshape(k, n)
    (product,) = make_reference(np, "gemm", a, b).parts
    assert product.tolist() == wrapped(exact("gemm", a, b))


def test_an_int32_reference_is_exact_in_steps_along_k(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "EXACT_STEP", 8)
    a = np.full((2, 37), -(2**31), np.int32)
    a[1] = 2**31 - 1
    b = np.full((37, 2), 2**31 - 1, np.int32)
    (product,) = make_reference(np, "gemm", a, b).parts
    assert product.tolist() == wrapped(exact("gemm", a, b))


@settings(max_examples=30)
@given(
    st.integers(1, 6), st.integers(1, 6), st.integers(1, 40), st.integers(0, 2**32), st.booleans()
)
def test_a_reference_of_any_shape_is_exact(m: int, n: int, k: int, seed: int, double: bool) -> None:
    a, b = make_inputs(problem(m, n, k, "float64" if double else "float32"), seed)
    assert worst_error(a, b) <= (2**-60 if double else k * 2**-53)


@pytest.mark.parametrize("dtype", CORE_DTYPES)
def test_a_seed_decides_the_operands(dtype: str) -> None:
    first, same, other = (make_inputs(problem(9, 9, 9, dtype), seed) for seed in (1, 1, 2))
    assert all(map(np.array_equal, first, same))
    assert not any(map(np.array_equal, first, other))
    assert not np.array_equal(*first)


@pytest.mark.parametrize("dtype", CORE_DTYPES)
def test_operands_fill_their_range_on_both_sides_of_zero(dtype: str) -> None:
    bound = 2.0**31 if dtype == "int32" else 1
    for array in make_inputs(problem(100, 100, 100, dtype), 1):
        assert -bound <= array.min() < -0.99 * bound
        assert 0.99 * bound < array.max() <= bound
        assert abs(array.mean(dtype=np.float64)) < 0.05 * bound
        assert np.count_nonzero(array) > 0.99 * array.size


@pytest.mark.parametrize("fill", Fill)
def test_int8_operands_can_change_their_sign(fill: Fill) -> None:
    for array in make_inputs(problem(30, 20, 40, "int8"), 1, fill):
        assert array.min() >= -127


def test_int8_operands_have_negatives() -> None:
    for array in make_inputs(problem(100, 100, 100, "int8"), 1):
        assert (array.min(), array.max()) == (-127, 127)


def test_an_operand_has_the_type_that_its_operation_states(monkeypatch: pytest.MonkeyPatch) -> None:
    operation = OPERATIONS["gemv"]
    vector = replace(operation.inputs[1], dtype="int8")
    stated = replace(operation, inputs=(operation.inputs[0], vector))
    monkeypatch.setitem(OPERATIONS._by_name, "gemv", stated)
    for fill in (Fill.UNIFORM, Fill.INDEX):
        a, x = make_inputs(Problem(op="gemv", m=9, n=200, dtype="float32"), 1, fill)
        assert (a.dtype, x.dtype) == (np.float32, np.int8)
        assert np.unique(x).size > 50


def test_a_factor_of_another_type_is_neither_probed_nor_doubled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gemm = OPERATIONS["gemm"]
    weights = replace(gemm.inputs[1], dtype="int8")
    stated = replace(gemm, inputs=(gemm.inputs[0], weights))
    monkeypatch.setitem(OPERATIONS._by_name, "gemm", stated)
    assert not problem(4, 4, 4).operation.has_product
    assert {
        abs(factor) for index in range(4) for factor in operand_factors(problem(4, 4, 4), index)
    } == {1}


@pytest.mark.parametrize("op", ["gemm", "gemv", "gemv_t", "atax"])
@pytest.mark.parametrize("dtype", ["float16", "float8_e4m3", "bfloat16", "float32", "int8"])
def test_index_operands_that_exceed_the_range_of_a_type_are_noticed(op: str, dtype: str) -> None:
    for n in (1, 2, 5, 8, 20, 40):
        at = Problem(op=op, m=n, n=n, k=n if op == "gemm" else 1, dtype=dtype)
        inputs = make_inputs(at, 1, Fill.INDEX)
        with np.errstate(over="ignore", invalid="ignore"):
            right = product(op, *(x.astype(np.float64) for x in inputs)).astype(at.types[-1])
        assert exceeds_range(at, inputs) != np.isfinite(right.astype(np.float64)).all()


def test_index_operands_are_multiples_of_the_element_number() -> None:
    a, b = make_inputs(problem(2, 2, 3, "int32"), 1, Fill.INDEX)
    assert a.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert b.tolist() == [[0, 2], [4, 6], [8, 10]]
    assert (a.dtype, b.dtype) == (np.int32, np.int32)


def test_many_index_operands_wrap_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.np, "arange", lambda count, dtype: np.full(count, 2**30 + 1, dtype))
    a, b = make_inputs(problem(1, 1, 1, "int32"), 1, Fill.INDEX)
    assert (a.item(), b.item()) == (2**30 + 1, -(2**31) + 2)
