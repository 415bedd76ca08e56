"""Rates from a time and a problem, and the two limits of the roofline."""

import itertools
from dataclasses import replace

import pytest
from fakes import gemm as problem

from gpubench.hardware.architectures import example
from gpubench.hardware.metrics import (
    arithmetic_intensity,
    cgma,
    gbytes_per_s,
    gflops,
    least_us,
    percent,
    roofline,
)
from gpubench.model import DTYPES, Device, Problem

H200 = example("sm_90")


def test_rates_and_intensity_move_each_operand_once() -> None:
    assert gflops(problem(1024, 1024, 1024), 1000.0) == pytest.approx(2147.483648)
    assert gbytes_per_s(problem(1000, 1000, 1000), 1000.0) == pytest.approx(12.0)
    assert arithmetic_intensity(problem(600, 600, 600)) == pytest.approx(100)
    assert arithmetic_intensity(problem(600, 600, 600, "float64")) == pytest.approx(50)


def test_a_percentage_of_something_missing_is_missing() -> None:
    assert percent(1.0, 4.0) == 25
    assert percent(None, 4.0) is None
    assert percent(1.0, None) is None
    assert percent(1.0, 0.0) is None
    assert percent(0.0, 4.0) == 0


def test_cgma_of_a_square_tile_approaches_its_edge_and_a_vector_has_one_column() -> None:
    for edge in (1, 2, 16, 32):
        assert cgma(problem(64, 64, 10**7), (edge, edge)) == pytest.approx(edge, rel=1e-4)
    alone = Problem(op="gemv", m=64, n=10**7, dtype="float32")
    assert cgma(alone, (1, 1)) == pytest.approx(1, rel=1e-4)
    # Four rows share a load of x: eight operations for five loads.
    assert cgma(alone, (4, 1)) == pytest.approx(8 / 5, rel=1e-4)
    tall = Problem(op="gemv_t", m=10**7, n=64, dtype="float32")
    assert cgma(tall, (1, 1)) == pytest.approx(1, rel=1e-4)


def test_the_roofline_names_tensor_cores_as_the_unit_of_its_peak() -> None:
    roof = roofline(problem(1024, 1024, 1024, "float64"), H200, "float64")
    assert roof
    assert (roof.peak_unit, roof.cores_share) == ("tensor cores", 0.5)


def test_without_peak_or_bandwidth_there_is_no_roofline() -> None:
    small = problem(64, 64, 64)
    assert roofline(small, example("sm_121"), "float32") is None  # its clock is unknown
    assert roofline(small, replace(H200, memory_bandwidth_gbytes_per_s=None), "float32") is None


def test_no_honest_time_is_under_the_least() -> None:
    for extent, dtype in itertools.product([64, 1024, 8192], DTYPES):
        at = problem(extent, extent, extent, dtype)
        limit_us = least_us(at, H200)
        assert 0 < limit_us <= roofline(at, H200, dtype).bound_us


def test_the_least_time_is_that_of_memory_without_what_a_cache_keeps_or_of_the_load_paths() -> None:
    device = replace(H200, l2_bytes=60 * 2**20)
    at = Problem(op="gemv", m=32768, n=8192, dtype="float32")
    limit_us = (at.bytes - device.l2_bytes) / H200.memory_bandwidth_gbytes_per_s / 1e3
    assert least_us(at, device) == pytest.approx(limit_us, rel=1e-3)
    assert least_us(problem(32, 32, 32, "float16"), device) == 2 * 32**2 * 2 / (132 * 128 * 1980)


def test_the_least_time_counts_operands_in_their_own_types() -> None:
    scaled = Problem.of("gemm_scaled", (64, 2**16, 2**15), "float8_e4m3")
    a, b, scales_of_a, scales_of_b, _ = scaled.bytes_of_arrays
    assert (a, b) == (64 * 2**15, 2**31)
    assert (scales_of_a, scales_of_b) == (4 * 64 * 2**8, 4 * 2**8 * 2**9)
    inputs = a + b + scales_of_a + scales_of_b
    limit_us = (inputs - H200.l2_bytes) / H200.memory_bandwidth_gbytes_per_s / 1e3
    assert least_us(scaled, H200) == pytest.approx(limit_us)


def test_the_least_time_of_tensor_cores_is_at_the_highest_clock() -> None:
    limit_us = 2 * 8192**3 / (132 * 4096 * 1980e6) * 1e6
    assert least_us(problem(8192, 8192, 8192, "float16"), H200) == pytest.approx(limit_us)


def test_a_device_of_which_nothing_is_known_has_no_least_time() -> None:
    assert least_us(problem(64, 64, 64), Device(backend="cpu", name="some CPU")) == 0
