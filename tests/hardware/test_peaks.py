"""Theoretical peaks are equal to the published figures of known devices."""

from dataclasses import replace

import pytest

from gpubench.hardware.architectures import example
from gpubench.hardware.peaks import RATES, find_peak, peak_gflops, peaks, ridge_flop_per_byte
from gpubench.model import DTYPES, Device

H200, A100, B200 = (example(name) for name in ("sm_90", "sm_80", "sm_100"))
RTX_3090, RTX_4090, RTX_5090 = (example(name) for name in ("sm_86", "sm_89", "sm_120"))
A40 = replace(RTX_3090, name="NVIDIA A40", multiprocessors=84, sm_clock_mhz=1740.0)
L40S = replace(RTX_4090, name="NVIDIA L40S", multiprocessors=142, sm_clock_mhz=2520.0)
A10 = replace(RTX_3090, name="NVIDIA A10", multiprocessors=72, sm_clock_mhz=1695.0)
A10G = replace(RTX_3090, name="NVIDIA A10G", multiprocessors=80, sm_clock_mhz=1710.0)
GB200 = replace(B200, name="NVIDIA GB200", multiprocessors=152, sm_clock_mhz=2062.0)
RTX_A6000 = replace(A40, name="NVIDIA RTX A6000", sm_clock_mhz=1800.0)
H100_SXM = replace(H200, name="NVIDIA H100 80GB HBM3")
H100_PCIE = replace(H200, name="NVIDIA H100 PCIe", multiprocessors=114, sm_clock_mhz=1755.0)
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


PUBLISHED = {
    ("float32", "cores"): [(H200, 66.9), (A100, 19.5), (P100, 10.6), (B200, 75)],
    ("float64", "cores"): [(H200, 33.5), (A100, 9.7), (P100, 5.3), (B200, 37)],
    ("int32", "cores"): [(H200, 33.5)],
    ("float64", "tensor cores"): [(H200, 66.9), (A100, 19.5), (B200, 37)],
    ("tf32", "tensor cores"): [
        (H200, 494.7),
        (A100, 156),
        (B200, 1125),
        (H100_PCIE, 378),
        (RTX_3090, 35.6),
        (A40, 74.8),
        (RTX_4090, 82.6),
        (L40S, 183),
        (RTX_5090, 104.8),
        (A10, 62.5),
        (A10G, 35),
        (RTX_A6000, 77.4),
        (H100_SXM, 494.7),
    ],
    ("float16", "tensor cores"): [
        (H200, 989.4),
        (A100, 312),
        (B200, 2250),
        (H100_PCIE, 756),
        (example("sm_70"), 125),
        (example("sm_75"), 65),
        (RTX_3090, 71),
        (A40, 149.7),
        (RTX_4090, 165.2),
        (L40S, 362),
        (RTX_5090, 209.5),
        (A10, 125),
        (A10G, 70),
        (RTX_A6000, 154.8),
        (H100_SXM, 989.4),
    ],
    ("float16_sum16", "tensor cores"): [
        (H200, 989.4),
        (A100, 312),
        (RTX_3090, 142),
        (RTX_4090, 330.3),
        (A10, 125),
        (A10G, 70),
    ],
    ("bfloat16", "tensor cores"): [
        (H200, 989.4),
        (A100, 312),
        (B200, 2250),
        (GB200, 2500),
        (H100_PCIE, 756),
        (A10, 125),
        (A10G, 70),
        (RTX_A6000, 154.8),
        (H100_SXM, 989.4),
        (RTX_3090, 71),
        (A40, 149.7),
        (RTX_4090, 165.2),
        (L40S, 362),
        (RTX_5090, 209.5),
    ],
    ("bf16x3", "tensor cores"): [(H200, 989.4 / 3), (RTX_4090, 165.2 / 3), (A10G, 70 / 3)],
    ("bf16x6", "tensor cores"): [(H200, 989.4 / 6), (A100, 312 / 6)],
    ("int8", "tensor cores"): [
        (H200, 1978.9),
        (A100, 624),
        (B200, 4500),
        (H100_PCIE, 1513),
        (example("sm_75"), 130),
        (RTX_3090, 284),
        (A40, 299.3),
        (RTX_4090, 660.6),
        (L40S, 733),
        (RTX_5090, 838),
        (A10, 250),
        (A10G, 140),
        (RTX_A6000, 309.7),
        (H100_SXM, 1978.9),
    ],
    ("float8_e4m3", "tensor cores"): [
        (H200, 1978.9),
        (B200, 4500),
        (H100_PCIE, 1513),
        (RTX_4090, 330.3),
        (L40S, 733),
        (RTX_5090, 419),
    ],
}
"""TFLOP/s (dense) in NVIDIA's datasheets and white papers. Sums are in float32 or int32, unless the
name has another type."""


def test_a_precision_has_the_peak_of_the_instructions_that_it_uses() -> None:
    split = find_peak(H200, "float8_e4m3_split", "tensor cores")
    assert split == find_peak(H200, "float8_e4m3", "tensor cores")
    assert split
    assert split.gflops == peak_gflops(H200, "float8_e4m3_split")


def test_every_row_gives_the_published_figures() -> None:
    assert list(PUBLISHED) == list(RATES)
    for (arithmetic, unit), figures in PUBLISHED.items():
        for device, published in figures:
            peak = find_peak(device, arithmetic, unit)
            assert peak, (arithmetic, unit)
            assert peak.gflops
            label = f"{arithmetic} on {unit} of {device.name}"
            # The datasheets of these two GPUs have rounded figures, or several clocks.
            tolerance = 0.0125 if device in (L40S, B200) else 0.005
            assert peak.gflops / 1e3 == pytest.approx(published, rel=tolerance), label


def test_a_product_is_a_percentage_of_the_fastest_exact_unit() -> None:
    for dtype, published in (("float32", 66.9), ("float64", 66.9), ("int32", 33.5)):
        assert peak_gflops(H200, dtype) / 1e3 == pytest.approx(published, rel=0.005)


def test_a_precision_of_the_same_instructions_has_their_peak() -> None:
    assert peak_gflops(H200, "float8_e4m3_split") == peak_gflops(H200, "float8_e4m3")
    assert peak_gflops(H200, "float8_e4m3_split") == pytest.approx(1978.9e3, rel=0.005)


def test_a_peak_says_which_clock_it_uses() -> None:
    for device, arithmetic, unit, clock_mhz in (
        (H200, "float32", "cores", 1980),
        (H200, "float64", "tensor cores", 1980),
        (H200, "bfloat16", "tensor cores", 1830),
        (H100_PCIE, "bfloat16", "tensor cores", 1620),
        (replace(H200, sm_clock_mhz=1785.0), "bfloat16", "tensor cores", 1785),  # H100 NVL
        (B200, "float32", "cores", 1965),
        (B200, "float64", "tensor cores", 1965),
        (B200, "bfloat16", "tensor cores", 1856),
        (GB200, "tf32", "tensor cores", 2008),
        (A100, "bfloat16", "tensor cores", 1410),
    ):
        peak = find_peak(device, arithmetic, unit)
        assert peak
        assert peak.clock_mhz == clock_mhz
        assert f"× {clock_mhz} MHz" in peak.derivation
        lower = clock_mhz != device.sm_clock_mhz
        assert ("(the datasheet's for tensor cores)" in peak.derivation) == lower


def test_a_unit_without_the_precision_has_no_peak() -> None:
    assert find_peak(H200, "float32", "tensor cores") is None


def test_another_clock_scales_the_peak() -> None:
    assert peak_gflops(H200, "float32", 990.0) == pytest.approx(peak_gflops(H200, "float32") / 2)


STOPPED = replace(P100, sm_clock_mhz=None)


@pytest.mark.parametrize(
    ("device", "why"), [(UNLISTED, "99.0"), (STOPPED, "the clock is not known"), (CPU, "")]
)
def test_a_device_without_a_peak_has_a_reason(device: Device, why: str) -> None:
    assert {peak_gflops(device, dtype) for dtype in DTYPES} == {None}
    assert {peak.gflops for peak in peaks(device)} == {None}
    assert any(why in peak.derivation for peak in peaks(device))
    assert all(peak.derivation for peak in peaks(device))


def test_the_ridge_is_peak_over_bandwidth() -> None:
    assert ridge_flop_per_byte(H200, "float32") == pytest.approx(66_908 / 4800, rel=0.001)
    assert ridge_flop_per_byte(P100, "float32") is None
    assert ridge_flop_per_byte(UNLISTED, "float32") is None
