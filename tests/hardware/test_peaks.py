"""Theoretical peaks against the published figures of known devices."""

from __future__ import annotations

import pytest

from gpubench.hardware.peaks import OPERATIONS_PER_CLOCK, peak_gflops, peaks, ridge_flop_per_byte
from gpubench.model import DTYPES, Device

H200 = Device(
    backend="cuda",
    name="NVIDIA H200",
    compute_capability=(9, 0),
    multiprocessors=132,
    sm_clock_mhz=1980.0,
    memory_bandwidth_gbytes_per_s=4800.0,
)
A100 = Device(
    backend="cuda",
    name="NVIDIA A100",
    compute_capability=(8, 0),
    multiprocessors=108,
    sm_clock_mhz=1410.0,
)
P100 = Device(
    backend="cuda",
    name="Tesla P100",
    compute_capability=(6, 0),
    multiprocessors=56,
    sm_clock_mhz=1480.0,
)
UNLISTED = Device(
    backend="cuda", name="future", compute_capability=(99, 0), multiprocessors=1, sm_clock_mhz=1.0
)
CPU = Device(backend="cpu", name="some CPU")


def tera(device: Device, arithmetic: str, unit: str) -> float:
    (found,) = (
        peak for peak in peaks(device) if (peak.arithmetic, peak.unit) == (arithmetic, unit)
    )
    return found.gflops / 1e3


@pytest.mark.parametrize(
    ("device", "arithmetic", "unit", "published"),
    [
        (H200, "float32", "cores", 66.9),
        (H200, "float64", "cores", 33.5),
        (H200, "float64", "tensor cores", 66.9),
        (H200, "int32", "cores", 33.5),
        (H200, "tf32", "tensor cores", 494.7),
        (H200, "float16", "tensor cores", 989.4),
        (H200, "bfloat16", "tensor cores", 989.4),
        (H200, "int8", "tensor cores", 1978.9),
        (A100, "float32", "cores", 19.5),
        (A100, "float64", "cores", 9.7),
        (A100, "float64", "tensor cores", 19.5),
        (A100, "tf32", "tensor cores", 156),
        (A100, "float16", "tensor cores", 312),
        (P100, "float32", "cores", 10.6),
        (P100, "float64", "cores", 5.3),
    ],
)
def test_a_peak_is_the_published_one(
    device: Device, arithmetic: str, unit: str, published: float
) -> None:
    assert tera(device, arithmetic, unit) == pytest.approx(published, rel=0.005)


@pytest.mark.parametrize(
    ("dtype", "published"), [("float32", 66.9), ("float64", 66.9), ("int32", 33.5)]
)
def test_a_product_is_held_against_the_fastest_exact_unit(dtype: str, published: float) -> None:
    assert peak_gflops(H200, dtype) / 1e3 == pytest.approx(published, rel=0.005)


def test_another_clock_scales_the_peak() -> None:
    assert peak_gflops(H200, "float32", 990.0) == pytest.approx(peak_gflops(H200, "float32") / 2)


def test_an_unlisted_capability_has_no_peak_but_a_reason() -> None:
    assert {peak.gflops for peak in peaks(UNLISTED)} == {None}
    assert all("99.0" in peak.derivation for peak in peaks(UNLISTED))
    assert peak_gflops(UNLISTED, "float32") is None


def test_a_peak_without_a_clock_is_unknown() -> None:
    stopped = Device(
        backend="cuda", name="x", compute_capability=(6, 0), multiprocessors=56, sm_clock_mhz=None
    )
    assert peak_gflops(stopped, "float32") is None
    assert "the clock is not known" in {peak.derivation for peak in peaks(stopped)}


def test_a_cpu_has_no_peak() -> None:
    assert {peak_gflops(CPU, dtype) for dtype in DTYPES} == {None}
    assert all(peak.derivation for peak in peaks(CPU))


def test_every_known_peak_says_where_it_comes_from() -> None:
    for peak in peaks(H200):
        assert peak.derivation
        assert peak.gflops is None or "132 SM × " in peak.derivation


def test_every_arithmetic_appears_once_for_each_unit() -> None:
    listed = [(peak.arithmetic, peak.unit) for peak in peaks(H200)]
    assert listed == list(OPERATIONS_PER_CLOCK)


def test_the_ridge_is_peak_over_bandwidth() -> None:
    assert ridge_flop_per_byte(H200, "float32") == pytest.approx(66_908 / 4800, rel=0.001)
    assert ridge_flop_per_byte(P100, "float32") is None
    assert ridge_flop_per_byte(UNLISTED, "float32") is None
