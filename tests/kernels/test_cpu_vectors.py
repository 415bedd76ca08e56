"""gemv, gemv_t and atax on the CPU: right for every odd pair of dimensions."""

import itertools
from functools import cache

import numpy as np
import pytest
from fakes import why_wrong

from gpubench.engine.judge.verify import poison, relative_error
from gpubench.engine.operands import make_inputs, make_reference
from gpubench.model import OPERATIONS, PRECISIONS, CallVariant, Problem
from gpubench.plan.registry import variants

OPS = tuple(name for name, operation in OPERATIONS.items() if not operation.has_k)
ON_CPU = [
    variant
    for variant in variants()
    if variant.op in OPS and isinstance(variant, CallVariant) and variant.backend == "cpu"
]
DIMENSIONS = (1, 7, 128, 129, 12_345)
LARGEST = DIMENSIONS[-1]
PAIRS = list(itertools.product(DIMENSIONS[:-1], repeat=2))
IN_ANOTHER_DTYPE = list(itertools.product((1, 7, 129), repeat=2))
"""Pairs in a dtype other than float32, in which the loops are the same."""

LONG = [pair for side in (1, 7, 129) for pair in ((LARGEST, side), (side, LARGEST))]


@cache
def built(variant: CallVariant, dtype: str):  # type: ignore[no-untyped-def]
    return variant.build(None, dtype)


def verdict(variant: CallVariant, problem: Problem) -> str | None:
    operands = make_inputs(problem, 1)
    result = np.empty(problem.output_shape, problem.dtype)
    poison(result)
    built(variant, problem.dtype)(*operands, result)
    error = relative_error(np, result, make_reference(np, problem.op, *operands))
    return why_wrong(error, PRECISIONS[problem.dtype].tolerance)


def check(variant: CallVariant, dtype: str, pairs: list[tuple[int, int]]) -> None:
    for m, n in pairs:
        problem = Problem(op=variant.op, m=m, n=n, dtype=dtype)
        assert verdict(variant, problem) is None, (dtype, m, n)


def test_a_result_is_right_whatever_the_dimensions() -> None:
    for variant in ON_CPU:
        check(variant, "float32", PAIRS)


@pytest.mark.slow
def test_a_result_is_right_for_a_long_side_and_in_another_dtype() -> None:
    for variant in ON_CPU:
        check(variant, "float32", LONG)
        *_, last = variant.dtypes
        check(variant, last, IN_ANOTHER_DTYPE)
