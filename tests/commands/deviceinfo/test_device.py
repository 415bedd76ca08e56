"""`deviceinfo` prints a device as tables and as JSON."""

import json
from dataclasses import replace

import pytest
from fakes import CPU
from samples import printed

from gpubench.commands.deviceinfo.view import as_tables, device_json
from gpubench.hardware.architectures import example

H200 = replace(
    example("sm_90"),
    memory_bandwidth_gbytes_per_s=4917.0,
    l2_bytes=62_914_560,
    versions={"driver": "580.1"},
    facts={"ecc": True, "warp_size": 32, "caches": {"L1": 1024}, "list": [1, 2]},
)


def test_a_gpu_shows_its_properties_and_peaks_with_their_derivation() -> None:
    shown = printed(as_tables(H200))
    for piece in (
        "NVIDIA H200 (cuda:0)",
        "62,914,560",
        "66,908",
        "13.6",
        "version of driver",
        "yes",
        "132 SM × 256 op/clock × 1980 MHz",
        "L1 1,024",
        "1; 2",
    ):
        assert piece in shown


def test_small_figures_keep_their_decimals() -> None:
    facts = {"measured_float32_fma_gflops": 130.0, "measured_copy_gbytes_per_s": 40.0}
    shown = printed(as_tables(replace(CPU, facts=facts)))
    assert ["float32", "ridge,", "FLOP/byte", "3.25"] in [x.split() for x in shown.splitlines()]


def test_json_holds_fields_peaks_and_ridge_points() -> None:
    read = json.loads(json.dumps(device_json([H200, CPU], {"cuda": "no driver"})))
    gpu, cpu = read["devices"]
    assert gpu["compute_capability"] == [9, 0]
    assert gpu["facts"]["ecc"] is True
    peaks = {(peak["arithmetic"], peak["unit"]): peak["gflops"] for peak in gpu["peaks"]}
    assert peaks["float32", "cores"] == pytest.approx(66_908, rel=1e-4)
    assert gpu["ridge_flop_per_byte"]["float32"] == pytest.approx(13.6, rel=1e-2)
    assert cpu["peaks"] == []
    assert set(cpu["ridge_flop_per_byte"].values()) == {None}
    assert read["cuda_missing"] == "no driver"
