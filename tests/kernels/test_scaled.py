"""Products with scales: the statement of the operation, and verdicts on its kernels."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from own_kernels import statuses

from gpubench.engine.judge.probe import all_probes, inputs_of, require_exact
from gpubench.engine.judge.verdict import WrongError
from gpubench.engine.judge.verify import require_right_on
from gpubench.engine.operands.make import make_inputs
from gpubench.kernels.gemm_scaled import cublaslt
from gpubench.model import CudaVariant, Problem
from gpubench.plan.registry import of_op


def problem(m: int, n: int, k: int, dtype: str = "float8_e4m3") -> Problem:
    return Problem(op="gemm_scaled", m=m, n=n, k=k, dtype=dtype)


def test_scales_belong_to_128_of_k_of_a_row_and_to_blocks_of_128x128() -> None:
    at = problem(3, 130, 260, "float64")
    a, b, a_scales, b_scales = make_inputs(at, 1)
    assert (a_scales.shape, b_scales.shape) == ((3, 3), (2, 3))
    assert at.types == ("float64", "float64", "float32", "float32", "float64")
    result = at.operation.reference(np, a, b, a_scales, b_scales)
    for i in range(3):
        for j in (0, 127, 128, 129):
            right = sum(
                a[i, k] * a_scales[k // 128, i] * b[k, j] * b_scales[j // 128, k // 128]
                for k in range(260)
            )
            assert result[i, j] == pytest.approx(right, rel=1e-12)


def test_scales_belong_to_rows_of_a_and_columns_of_b() -> None:
    at = Problem(op="gemm_scaled_rows", m=3, n=5, k=7, dtype="float64")
    a, b, a_scales, b_scales = make_inputs(at, 1)
    result = at.operation.reference(np, a, b, a_scales, b_scales)
    np.testing.assert_allclose(result, (a @ b) * a_scales[:, None] * b_scales, 1e-12)


def moved(scales: np.ndarray, axis: int) -> np.ndarray:
    return np.roll(scales, 1, axis=axis)


@pytest.mark.parametrize("operand", [2, 3])
@pytest.mark.parametrize(
    ("op", "axis"), [("gemm_scaled", 0), ("gemm_scaled", 1), ("gemm_scaled_rows", 0)]
)
def test_a_probe_shows_scales_of_another_place(op: str, operand: int, axis: int) -> None:
    at = replace(problem(70, 300, 272), op=op)

    def computed(*operands: np.ndarray) -> np.ndarray:
        wide = (array.astype(np.float64) for array in operands)
        return at.operation.reference(np, *wide).astype(at.precision.result)

    exact, widths = 0, 0
    for probe in all_probes(at, 1):
        operands = list(inputs_of(probe))
        assert [x.shape for x in operands] == list(at.input_shapes)
        require_exact(probe, np, computed(*operands))
        if (operands[2] == 1).all():
            widths += 1
            continue
        operands[operand] = moved(operands[operand], axis)
        with pytest.raises(WrongError, match="exact probe at 70x300x272"):
            require_exact(probe, np, computed(*operands))
        exact += 1
    assert (exact, widths) == (2, 1)


def test_a_probe_shows_an_element_that_lost_a_bit_and_the_tolerance_does_not() -> None:
    at = problem(37, 45, 160, "float32")

    def cleared(a: np.ndarray, *others: np.ndarray) -> np.ndarray:
        a = (a.view(np.int32) & ~3).view(np.float32)
        return at.operation.reference(np, a.astype(np.float64), *others).astype(np.float32)

    inputs = make_inputs(at, 1)
    require_right_on(np, at, inputs, cleared(*inputs))
    probe, *_ = all_probes(at, 1)
    with pytest.raises(WrongError, match="exact probe"):
        require_exact(probe, np, cleared(*inputs_of(probe)))


def test_a_box_of_scales_begins_at_a_multiple_of_four_and_is_padded() -> None:
    kernel = of_op("gemm_scaled")["wgmma_scaled"]
    assert isinstance(kernel, CudaVariant)
    assert kernel.tiles
    scales = []
    for tile in ("128x256x128/s3/cluster=1x1/group=8", "32x256x128/s3/cluster=1x1/group=8"):
        launch = kernel.launch(kernel.tiles.read(tile), problem(3, 256, 400))
        rows = int(tile.split("x")[0])
        boxes = 2 * (64 * 256 if rows == 128 else rows * 128)
        scales.append(launch.shared_bytes - 3 * (rows + 256) * 128 - boxes)
        assert [each.array for each in launch.tensor_maps] == [0, 1, 4, 2]
    assert scales == [3 * 640, 3 * 256]  # 132 and 36 numbers, padded to multiples of 32
    assert launch.tensor_maps[-1].box == (1, 36)
    assert launch.tensor_maps[-1].shape == (1, 4 * 3)
    by_rows = replace(problem(3, 256, 400), op="gemm_scaled_rows")
    assert kernel.why_not(kernel.tiles.defaults[0], by_rows) == "has scales of blocks only"


@given(
    st.tuples(st.integers(1, 9000), st.integers(1, 1000), st.integers(1, 600)),
    st.sampled_from((1, 4, 132)),
)
def test_every_pick_is_legal_and_fits_any_number_of_rows(
    size: tuple[int, int, int], multiprocessors: int
) -> None:
    m, n, k = size
    at = problem(m, 8 * n, 16 * k)
    kernel = of_op("gemm_scaled")["wgmma_scaled"]
    tiles = kernel.tiles_for(at, multiprocessors)
    assert len(set(tiles)) == len(tiles) > 0
    assert [kernel.why_not(tile, at, (9, 0)) for tile in tiles] == [None] * len(tiles)


def test_the_library_takes_scales_whose_rows_need_no_padding() -> None:
    assert cublaslt.refuse(None, problem(64, 256, 512)) is None
    assert cublaslt.refuse(None, problem(64, 256, 400)) is None
    assert "not 64 and 2" in str(cublaslt.refuse(None, problem(64, 256, 256)))
    assert "not 63 and 4" in str(cublaslt.refuse(None, problem(63, 256, 512)))
    assert "N and K divisible by 16" in str(cublaslt.refuse(None, problem(64, 250, 512)))


KERNEL = """import numpy as np

from gpubench.model import CallVariant


def build(_tile, _dtype):
    def call(a, b, a_scales, b_scales, c):
        m, k, n = *a.shape, b.shape[1]
        of_a = np.repeat(a_scales, 128, axis=0)[:k].T
        of_b = np.repeat(np.repeat(b_scales, 128, axis=1)[:, :k], 128, axis=0)[:n].T
        BODY

    return call


VARIANT = CallVariant(idea="a test", runs_on="cpu", dtypes=("float32",), build=build, threads=1)
"""

BODIES = {
    "right": "c[:] = (a * of_a) @ (b * of_b)",
    "unscaled": "c[:] = (a * of_a) @ b",
    "first": "c[:] = (a * of_a[:, :1]) @ (b * of_b)",
    "rows": "c[:] = (a * of_a) @ (b * of_b[:, :1])",
}


@pytest.mark.slow
def test_kernels_that_leave_out_or_mistake_scales_are_wrong(tmp_path: Path) -> None:
    status = statuses(tmp_path, "gemm_scaled", "30x141x300", KERNEL, BODIES)
    right = {name for name, each in status.items() if each == "ok"}
    assert right == {"right", "cpu_blas", "cpu_blas_parallel", "cpu_naive"}
    assert set(status) == right | set(BODIES)
