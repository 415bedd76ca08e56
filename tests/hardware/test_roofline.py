"""The roofline's two limits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpubench.hardware.architectures import example
from gpubench.hardware.roofline import roofline
from gpubench.model import Problem

H200 = example("sm_90")


def problem(m: int, n: int, k: int, dtype: str = "float32") -> Problem:
    return Problem(op="gemm", m=m, n=n, k=k, dtype=dtype)


def test_a_large_product_is_bound_by_arithmetic() -> None:
    roof = roofline(problem(1024, 1024, 1024), H200, "float32")
    assert roof
    assert roof.bound == "arithmetic"
    assert roof.bound_us == pytest.approx(2 * 1024**3 / 66_908_160e6 * 1e6)
    assert roof.arithmetic_intensity > roof.ridge_flop_per_byte
    assert (roof.peak_unit, roof.cores_share) == ("cores", 1)


def test_a_thin_product_is_bound_by_memory() -> None:
    roof = roofline(problem(4096, 1, 4096), H200, "float32")
    assert roof
    assert roof.bound == "memory"
    assert roof.bound_us == pytest.approx(4 * (4096**2 + 8192) / 4800e9 * 1e6)
    assert roof.arithmetic_intensity < roof.ridge_flop_per_byte


def test_the_roofline_names_tensor_cores_as_the_unit_of_its_peak() -> None:
    roof = roofline(problem(1024, 1024, 1024, "float64"), H200, "float64")
    assert roof
    assert (roof.peak_unit, roof.cores_share) == ("tensor cores", 0.5)


def test_without_peak_or_bandwidth_there_is_no_roofline() -> None:
    small = problem(64, 64, 64)
    assert roofline(small, example("sm_121"), "float32") is None  # its clock is not known
    assert roofline(small, replace(H200, memory_bandwidth_gbytes_per_s=None), "float32") is None
