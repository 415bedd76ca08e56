"""Has an example GPU of each architecture, for machines without a GPU.

All functions are pure. Occupancy follows from the compute capability. Waves and the roofline need
the multiprocessors, the clock and the bandwidth of a GPU model. Tables with such figures name the
model. The figures are from NVIDIA's datasheets and architecture white papers. A clock that is not
published is None, and an architecture without a published model is not listed.
"""

import re

from gpubench.model import Device

DEFAULT = "sm_90"  # the architecture if there is neither --arch nor a GPU

EXAMPLES = {
    capability: Device(
        backend="cuda",
        name=name,
        compute_capability=capability,
        multiprocessors=multiprocessors,
        sm_clock_mhz=clock_mhz,
        memory_bandwidth_gbytes_per_s=gbytes_per_s,
    )
    for capability, name, multiprocessors, clock_mhz, gbytes_per_s in (
        ((7, 0), "Tesla V100", 80, 1530, 900),
        ((7, 5), "Tesla T4", 40, 1590, 320),
        ((8, 0), "NVIDIA A100", 108, 1410, 2039),
        ((8, 6), "NVIDIA GeForce RTX 3090", 82, 1695, 936),
        ((8, 7), "NVIDIA Jetson AGX Orin", 16, 1300, 204.8),
        ((8, 9), "NVIDIA GeForce RTX 4090", 128, 2520, 1008),
        ((9, 0), "NVIDIA H200", 132, 1980, 4800),
        ((10, 0), "NVIDIA B200", 148, 1965, 8000),
        ((11, 0), "NVIDIA Jetson AGX Thor", 20, 1575, 273),
        ((12, 0), "NVIDIA GeForce RTX 5090", 170, 2407, 1792),
        ((12, 1), "NVIDIA GB10", 48, None, 273),
    )
}


def example(architecture: str) -> Device:
    """Return the example GPU of an architecture, or a device without name and figures.

    `sm_90` and `sm_90a` have capability 9.0, and `sm_121` has 12.1. Raises ValueError for other
    texts.
    """
    match = re.fullmatch(r"sm_(\d{1,2})(\d)[af]?", architecture, re.ASCII)
    if not match:
        raise ValueError(f"'{architecture}' is not an architecture; write sm_90")
    capability = int(match[1]), int(match[2])
    return EXAMPLES.get(capability) or Device(
        backend="cuda", name="", compute_capability=capability
    )
