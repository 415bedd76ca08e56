"""Operands, references and tolerances of every precision come from one table."""

from collections.abc import Callable

import numpy as np
import pytest
from fakes import FakeBackend, cut, point, variant, why_wrong

from gpubench.engine.judge.verify import relative_error
from gpubench.engine.measure.runner import Runner
from gpubench.engine.operands.make import make_inputs, make_reference
from gpubench.model import (
    DTYPES,
    OPERATIONS,
    PRECISIONS,
    Measurement,
    Precision,
    Problem,
    Status,
    Timing,
)
from gpubench.plan.registry import variants


def right(precision: Precision, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the product as a kernel may compute it in the precision."""
    if precision.is_integer:
        return (a.astype(np.int64) @ b.astype(np.int64)).astype(np.int32)
    if precision.name == "tf32":
        a, b = cut(a, 11), cut(b, 11)
    summed = a.astype(precision.accumulator) @ b.astype(precision.accumulator)
    return summed.astype(precision.result)


def test_a_right_product_is_accepted_and_a_missing_term_is_not() -> None:
    for name in DTYPES:
        precision = PRECISIONS[name]
        for m, n, k in ((1, 1, 1), (99, 101, 1), (7, 5, 3), (33, 17, 257), (64, 48, 1024)):
            a, b = make_inputs(Problem(op="gemm", m=m, n=n, k=k, dtype=name), seed=1)
            assert (str(a.dtype), a.itemsize) == (precision.element, precision.item_bytes)
            reference = make_reference(np, "gemm", a, b)
            c = right(precision, a, b)
            assert (str(c.dtype), c.itemsize) == (precision.result, precision.result_bytes)
            assert (
                why_wrong(
                    relative_error(np, c, reference, precision.result_roundoff), precision.tolerance
                )
                is None
            )
            kept = k - max(1, int(k * precision.tolerance))  # float16 sums lose several terms
            short = right(precision, a[:, :kept], b[:kept])
            assert why_wrong(
                relative_error(np, short, reference, precision.result_roundoff), precision.tolerance
            )


def test_operands_that_the_device_holds_as_bytes_are_compared_as_bytes() -> None:
    backend = FakeBackend(10.0)
    kernel = variant(lambda _a, _b, c: c.fill(np.nan), dtypes=("float8_e4m3",))
    result = Runner(backend, Timing(), 1).measure(point(kernel, dtype="float8_e4m3"))
    assert result.status == Status.WRONG  # and no error while it checks whether operands changed


def test_a_point_names_its_element_type_and_its_compute_mode() -> None:
    key = point(dtype="tf32").key
    assert (key.dtype, key.compute_mode) == ("float32", "tf32")


def test_exactly_the_precisions_with_a_kernel_or_a_library_routine_are_offered() -> None:
    assert set(DTYPES) == {dtype for kernel in variants() for dtype in kernel.dtypes}


def test_a_new_precision_needs_one_entry_and_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    split = Precision(
        name="two_bfloat16",
        element="float32",
        accumulator="float32",
        cpp="float",
        tensor_map_code=7,
        sum_roundoff=2.0**-24,
        input_roundoff=2.0**-16,
    )
    monkeypatch.setitem(PRECISIONS, split.name, split)

    def rounded(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
        c[:] = cut(a, 16) @ cut(b, 16)

    def measured(dtype: str) -> Status:
        backend = FakeBackend(10.0)
        kernel = variant(rounded, dtypes=(dtype,))
        return Runner(backend, Timing(), 1).measure(point(kernel, dtype=dtype)).status

    assert (measured(split.name), measured("float32")) == (Status.OK, Status.WRONG)


@pytest.mark.parametrize("op", ["gemm_bias", "gemm_gelu", "gemm_silu_residual", "gemm_scaled_rows"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_product_that_is_rounded_before_the_last_step_is_named_as_the_cause(
    op: str, dtype: str
) -> None:
    reference, result = OPERATIONS[op].reference, PRECISIONS[dtype].result

    def measured(change: Callable[[np.ndarray], np.ndarray]) -> Measurement:
        """Return the measurement of a kernel that changes A·B before it applies other operands."""

        def kernel(*operands: np.ndarray) -> None:
            a, b, *others, c = (operand.astype(np.float64) for operand in operands)
            c = reference(np, change(a @ b), np.eye(b.shape[1]), *others)
            operands[-1][:] = c.astype(result)

        own = variant(kernel, op=op, dtypes=(dtype,))
        at = point(own, size=(67, 45, 131), dtype=dtype)
        return Runner(FakeBackend(10.0), Timing(), 1).measure(at)

    assert measured(lambda product: product).status == Status.OK
    early = measured(lambda product: product.astype(result).astype(np.float64))
    cause = f"the product was rounded to {result} before the other operands were applied"
    assert (early.status, early.reason) == (Status.WRONG, cause)
    assert "tolerance" in measured(lambda product: 1.01 * product).reason
