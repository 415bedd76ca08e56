"""A GPU for each architecture."""

from __future__ import annotations

import pytest

from gpubench.hardware.architectures import EXAMPLES, capability, example
from gpubench.hardware.occupancy import LIMITS
from gpubench.hardware.peaks import peak_gflops


@pytest.mark.parametrize(
    ("text", "numbers"), [("sm_75", (7, 5)), ("sm_90a", (9, 0)), ("sm_121", (12, 1))]
)
def test_an_architecture_names_a_capability(text: str, numbers: tuple[int, int]) -> None:
    assert capability(text) == numbers


@pytest.mark.parametrize("text", ["", "90", "sm_9", "sm_90b", "compute_90", "sm_90 ", "sm_٩٠"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="sm_90"):
        capability(text)


def test_an_architecture_stands_for_a_gpu_that_is_named() -> None:
    assert example("sm_90a").name == "NVIDIA H200"
    assert example("sm_80").multiprocessors == 108


def test_one_without_a_product_has_a_capability_and_no_figures() -> None:
    unknown = example("sm_88")
    assert (unknown.name, unknown.multiprocessors, unknown.compute_capability) == ("", 0, (8, 8))


@pytest.mark.parametrize("of", [one for one in EXAMPLES if one])
def test_every_example_has_limits_and_with_a_clock_a_peak(of: tuple[int, int]) -> None:
    assert of in LIMITS
    device = EXAMPLES[of]
    assert (peak_gflops(device, "float32") is None) == (device.sm_clock_mhz is None)
