"""`run` with operand files: the kernel is chosen, and its product computed and verified."""

import numpy as np
import pytest
from fakes import FakeBackend, point

from gpubench.commands.operand_files.run import choose_point, compute
from gpubench.errors import DoesNotFitError, UsageError
from gpubench.model import Problem


def problem(n: int = 16_384, dtype: str = "float32") -> Problem:
    return Problem(op="atax", m=3, n=n, dtype=dtype)


def test_without_a_name_the_blas_is_taken_or_the_first_kernel() -> None:
    for backend, dtype, name in (
        ("cpu", "float32", "cpu_blas_parallel"),
        ("cpu", "float64", "cpu_blas_parallel"),
        ("cpu", "int32", "cpu_fused"),
        ("cuda", "float64", "cublas"),
        ("cuda", "int32", "atax_fused"),
    ):
        assert choose_point(backend, problem(dtype=dtype), None, None).variant.name == name


def test_without_a_tile_the_first_that_fits_the_problem_is_taken() -> None:
    for n, name, asked, taken in (
        (1000, "atax_fused", None, "256x1x4"),
        (16_384, "atax_fused", None, "512x8x1"),
        (16_384, "atax_staged", "64x3", "64x3"),
    ):
        assert str(choose_point("cuda", problem(n), name, asked).tile) == taken


def test_a_kernel_that_cannot_run_is_refused() -> None:
    for name, tile, dtype, reason in (
        ("nothing", None, "float32", "unknown variant 'nothing'"),
        ("cublas", None, "int32", "cublas has no int32"),
        ("cublas", "16", "float32", "has a tile to choose"),
        ("atax_staged", "48x3", "float32", "takes threads"),
        ("atax_fused", "512x1x1", "float32", "holds rows of up to 2048 elements"),
        ("cpu_naive", None, "float32", "runs on cpu"),
    ):
        with pytest.raises(UsageError, match=reason):
            choose_point("cuda", problem(dtype=dtype), name, tile)


A, B = np.ones((64, 32), np.float32), np.ones((32, 48), np.float32)


def test_a_result_comes_with_its_error() -> None:
    result, error = compute(FakeBackend(10.0), point(), (A, B))
    assert result.tolist() == (A @ B).tolist()
    assert error == 0.0


def test_too_little_memory_is_seen_before_anything_is_loaded() -> None:
    backend = FakeBackend(10.0, bytes_free=1000)
    with pytest.raises(DoesNotFitError, match="1,000 are free"):
        compute(backend, point(), (A, B))
    assert backend.events == []
