"""The cases that run on the CPU recognize results of a row-major B."""

from pathlib import Path

import numpy as np

from gpubench.model import CudaVariant, Problem
from gpubench.on_cpu.case import Case, is_of_row_major_b, operands


def test_the_result_of_a_row_major_b_is_recognized_in_a_dtype_whose_b_is_column_major() -> None:
    variant = CudaVariant(idea="of a test", kernel="k", grid=1, block=1, path=Path("k.py"))
    problem = Problem.of("gemm", (3, 4, 5), "int8")
    left, right = (each.astype(np.int32) for each in operands(problem))
    by_rows = left @ right.T.ravel().reshape(right.shape)
    case = Case(variant=variant, tile=None, problem=problem)
    assert is_of_row_major_b(case, by_rows)
    assert not is_of_row_major_b(case, left @ right)
