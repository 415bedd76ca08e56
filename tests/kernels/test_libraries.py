"""The routines of libraries accept some operands, and refuse others."""

import pytest

from gpubench.model import Problem
from gpubench.plan.registry import of_op


@pytest.mark.parametrize(("dtype", "whole"), [("int8", 4), ("float8_e4m3", 16), ("tf32", 1)])
def test_operands_of_8_bits_need_rows_of_whole_words(dtype: str, whole: int) -> None:
    for name in ("cublas", "cublaslt"):
        variant = of_op("gemm")[name]
        for n, k in ((16, 48), (8, 12), (7, 16), (16, 7)):
            reason = variant.refuse(None, Problem(op="gemm", m=5, n=n, k=k, dtype=dtype))
            assert (reason is None) == (n % whole == 0 and k % whole == 0)


def test_emulated_float64_is_a_row_of_its_own_and_no_baseline() -> None:
    variants = of_op("gemm")
    emulated = variants["cublas_emulated"]
    assert (emulated.dtypes, emulated.default, emulated.tunes) == (("float64",), False, "")
    assert "cublas_emulated" not in {variant.baseline for variant in variants.values()}
