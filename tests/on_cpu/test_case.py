"""The cases that run on the CPU recognize results of a row-major B."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gpubench.model import CudaVariant, Problem
from gpubench.on_cpu.case import Case, is_of_row_major_b, operands


@pytest.mark.parametrize(("op", "dtype"), [("gemm", "int8"), ("gemm_bias", "float32")])
def test_the_result_of_a_row_major_b_is_recognized_if_b_is_column_major(
    op: str, dtype: str
) -> None:
    variant = CudaVariant(idea="of a test", kernel="k", grid=1, block=1, path=Path("k.py"))
    problem = replace(Problem.of(op, (3, 4, 5), dtype), column_major=("B",))
    left, right, *added = (each.astype(np.int32) for each in operands(problem))
    by_rows = left @ right.T.ravel().reshape(right.shape) + sum(added)
    case = Case(variant=variant, tile=None, problem=problem)
    assert is_of_row_major_b(case, by_rows)
    assert not is_of_row_major_b(case, left @ right + sum(added))
