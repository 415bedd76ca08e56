"""Products of groups of rows: the statement of the operation, and verdicts on its kernels."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from own_kernels import statuses

from gpubench.engine.operands.make import make_inputs
from gpubench.kernels.gemm_grouped.operation import spans
from gpubench.model import OPERATIONS, CudaVariant, Problem
from gpubench.plan.registry import of_op

OPS = OPERATIONS.named_by("gemm_grouped")


def sizes(op: str, groups: int, rows: int, seed: int = 1) -> np.ndarray:
    problem = Problem.of(op, (rows, 2, 3, groups), "float64")
    offsets = make_inputs(problem, seed)[2]
    assert (offsets.dtype, offsets[-1]) == (np.int32, groups * rows)
    return np.diff(offsets, prepend=0)


@pytest.mark.parametrize("op", OPS)
def test_each_row_has_the_matrix_of_its_group(op: str) -> None:
    problem = Problem.of(op, (6, 4, 5, 7), "float64")
    a, b, offsets = make_inputs(problem, 3)
    assert problem.shapes == ((42, 5), (7, 5, 4), (7,), (42, 4))
    result = problem.operation.reference(np, a, b, offsets)
    for row in range(42):
        group = int((offsets <= row).sum())
        np.testing.assert_allclose(result[row], a[row] @ b[group], 1e-12)


def test_groups_are_equally_likely_or_as_skewed_as_stated_in_an_order_of_the_seed() -> None:
    even = sizes("gemm_grouped", 64, 1000)
    assert 800 < even.min() < even.max() < 1200
    skewed = sizes("gemm_grouped_skewed", 64, 1000)
    largest = np.sort(skewed)[::-1]
    assert largest[:4] / largest[0] == pytest.approx([1, 1 / 2, 1 / 3, 1 / 4], rel=0.1)
    assert skewed.argmax() != sizes("gemm_grouped_skewed", 64, 1000, seed=2).argmax()
    assert (sizes("gemm_grouped_skewed", 128, 2) == 0).sum() > 20


def test_groups_without_rows_are_left_out() -> None:
    assert list(spans(np.array([0, 3, 3, 5], np.int32))) == [(1, 0, 3), (3, 3, 5)]


@given(
    st.tuples(st.integers(1, 3000), st.integers(1, 500), st.integers(1, 500), st.integers(1, 200)),
    st.sampled_from((1, 4, 132)),
)
def test_every_pick_is_legal_and_no_block_is_without_a_tile(
    size: tuple[int, int, int, int], multiprocessors: int
) -> None:
    m, n, k, groups = size
    at = Problem.of("gemm_grouped", (m, 8 * n, 8 * k, groups), "bfloat16")
    kernel = of_op("gemm_grouped")["wgmma_grouped"]
    assert isinstance(kernel, CudaVariant)
    tiles = kernel.tiles_for(at, multiprocessors)
    assert len(set(tiles)) == len(tiles) > 0
    for tile in tiles:
        assert kernel.why_not(tile, at, (9, 0)) is None
        launch = kernel.launch(tile, at)
        rows, columns = tile.numbers("BM", "BN")
        blocks = launch.cluster[0]
        in_one_group = -(-groups * m // rows) * -(-8 * n // (columns * blocks))
        assert launch.grid[0] <= blocks * in_one_group  # groups of other sizes have more tiles


KERNEL = """from gpubench.kernels.gemm_grouped.operation import spans
from gpubench.model import CallVariant


def build(_tile, _dtype):
    def call(a, b, offsets, c):
        rows = len(a) // len(b)
        BODY

    return call


VARIANT = CallVariant(idea="a test", runs_on="cpu", dtypes=("float32",), build=build, threads=1)
"""

BODIES = {
    "right": "for g, i, j in spans(offsets): c[i:j] = a[i:j] @ b[g]",
    "even": "for g in range(len(b)): c[g*rows:(g+1)*rows] = a[g*rows:(g+1)*rows] @ b[g]",
    "next": "for g, i, j in spans(offsets): c[i:j] = a[i:j] @ b[g - 1]",
    "short": "for g, i, j in spans(offsets): c[i:j - 1] = a[i:j - 1] @ b[g]",
}


@pytest.mark.slow
def test_kernels_that_mistake_groups_are_wrong(tmp_path: Path) -> None:
    status = statuses(tmp_path, "gemm_grouped", "5x11x30x40", KERNEL, BODIES)
    right = {name for name, each in status.items() if each == "ok"}
    assert right == {"right", "cpu_blas", "cpu_blas_parallel", "cpu_naive"}
    assert set(status) == right | set(BODIES)
