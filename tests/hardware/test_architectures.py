"""A GPU for each architecture."""

import pytest

from gpubench.hardware.architectures import EXAMPLES, example
from gpubench.hardware.occupancy import LIMITS
from gpubench.hardware.peaks import peak_gflops


def test_an_architecture_names_a_capability() -> None:
    for text, numbers in (("sm_75", (7, 5)), ("sm_90a", (9, 0)), ("sm_121", (12, 1))):
        assert example(text).compute_capability == numbers


def test_anything_else_is_refused() -> None:
    for text in ("", "90", "sm_9", "sm_90b", "compute_90", "sm_90 ", "sm_٩٠"):
        with pytest.raises(ValueError, match="sm_90"):
            example(text)


def test_an_architecture_has_an_example_gpu() -> None:
    assert example("sm_90a").name == "NVIDIA H200"
    assert example("sm_80").multiprocessors == 108


def test_one_without_a_product_has_a_capability_and_no_figures() -> None:
    unknown = example("sm_88")
    assert (unknown.name, unknown.multiprocessors, unknown.compute_capability) == ("", 0, (8, 8))


def test_every_example_has_limits_and_with_a_clock_a_peak() -> None:
    for number, device in EXAMPLES.items():
        assert number in LIMITS
        assert (peak_gflops(device, "float32") is None) == (device.sm_clock_mhz is None)
