"""The number of operand sets that keep a cache cold, and the order of their use."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubench.backends.rotation import (
    ALIGNED_BYTES,
    CACHES_TO_OUTGROW,
    MAX_LAUNCHES,
    Rotation,
    bytes_of_sets,
    first_rows,
    set_policy,
    stacked,
)
from gpubench.model import DTYPES, OPERATIONS, Problem

extents = st.integers(1, 10_000)
problems = st.builds(
    Problem, op=st.just("gemm"), m=extents, n=extents, k=extents, dtype=st.sampled_from(DTYPES)
)
CACHE = 50 * 2**20


@given(problems, st.integers(2**16, 2**30), st.integers(1, 5000))
def test_cold_sets_outgrow_the_cache(problem: Problem, cache_bytes: int, max_sets: int) -> None:
    policy = set_policy(problem, cache_bytes, cold=True, max_sets=max_sets)
    assert min(2, max_sets) <= policy.count <= max_sets
    assert 1 <= policy.max_launches <= MAX_LAUNCHES
    if policy.flush:  # a sample after a flush uses no set twice
        assert policy.max_launches <= policy.count
    else:  # the sets between two uses of a set exceed the caches
        assert (policy.count - 1) * problem.bytes >= CACHES_TO_OUTGROW * cache_bytes
    two_fewer = policy.count - 2  # no more sets than necessary
    assert two_fewer < 1 or two_fewer * problem.bytes < CACHES_TO_OUTGROW * cache_bytes


@given(problems)
def test_hot_operands_are_one_set_and_never_flushed(problem: Problem) -> None:
    policy = set_policy(problem, CACHE, cold=False, max_sets=256)
    assert (policy.count, policy.flush) == (1, False)
    assert policy.max_launches == MAX_LAUNCHES


def test_the_rotation_goes_on_from_launch_to_launch_and_a_flush_serves_each_set_once() -> None:
    rotation, flushes = Rotation(4), []
    assert [rotation.take(launches) for launches in (3, 2, 5)] == [
        [0, 1, 2],
        [3, 0],
        [1, 2, 3, 0, 1],
    ]
    for launches, count in ((4, 1), (1, 2), (2, 2), (1, 2), (1, 3)):
        rotation.take(launches, lambda: flushes.append(1))
        assert len(flushes) == count


def test_a_set_that_a_single_launch_used_is_flushed_before_its_next_use() -> None:
    rotation, flushes = Rotation(2), []
    for count in (1, 2):
        rotation.take(1, lambda: flushes.append(1))
        assert len(flushes) == count
        next(rotation)


def test_fewer_rows_cut_the_arrays_that_have_as_many_rows_as_a() -> None:
    shapes = {}
    for op in (op for op, operation in OPERATIONS.items() if operation.is_product):
        problem = Problem(op=op, m=9, n=5, k=7 if op == "gemm" else 1, dtype="float32")
        arrays = [np.zeros(shape) for shape in (*problem.input_shapes, problem.output_shape)]
        (parts,) = first_rows([arrays], replace(problem, m=2))
        assert all(np.shares_memory(*pair) for pair in zip(arrays, parts, strict=True))
        shapes[op] = [part.shape for part in parts]
    assert shapes == {
        "gemm": [(2, 7), (7, 5), (2, 5)],
        "gemv": [(2, 5), (5,), (2,)],
        "gemv_t": [(2, 5), (2,), (5,)],
        "atax": [(2, 5), (5,), (5,)],
    }


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_each_set_of_odd_matrices_begins_where_an_allocation_may(dtype: str) -> None:
    problem = Problem(op="gemm", m=7, n=5, k=3, dtype=dtype, column_major=("B",))
    stacks = stacked(np.zeros, 3, problem)
    assert sum(stack.base.nbytes for stack in stacks) == sum(bytes_of_sets(problem, 3))
    for stack, shape, by_columns in zip(stacks, problem.shapes, problem.by_columns, strict=True):
        assert stack.shape == (3, *shape)
        assert stack.base is not None  # views, so a kernel writes into this memory
        assert stack.strides[0] % ALIGNED_BYTES == 0
        assert all((matrix.T if by_columns else matrix).flags.c_contiguous for matrix in stack)
