"""Architectures, each with an example GPU."""

import pytest

from gpubench.hardware.architectures import EXAMPLES, example
from gpubench.hardware.occupancy import LIMITS
from gpubench.hardware.peaks import peak_gflops


def test_an_architecture_names_a_capability_and_an_example_gpu_if_there_is_a_product() -> None:
    for text, capability, name, multiprocessors in (
        ("sm_75", (7, 5), "Tesla T4", 40),
        ("sm_80", (8, 0), "NVIDIA A100", 108),
        ("sm_90a", (9, 0), "NVIDIA H200", 132),
        ("sm_88", (8, 8), "", 0),
    ):
        example_gpu = example(text)
        assert (example_gpu.compute_capability, example_gpu.multiprocessors) == (
            capability,
            multiprocessors,
        )
        assert example_gpu.name.startswith(name)
        assert bool(example_gpu.name) == bool(name)
    for number, device in EXAMPLES.items():
        assert number in LIMITS
        assert (peak_gflops(device, "float32") is None) == (device.sm_clock_mhz is None)


@pytest.mark.parametrize("text", ["", "90", "sm_9", "sm_90b", "compute_90", "sm_90 ", "sm_٩٠"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="sm_90"):
        example(text)
