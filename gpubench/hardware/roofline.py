"""The roofline: the least time a problem can take, and which of two limits sets it. Pure.

Williams, Waterman, Patterson: Roofline (2009). Arithmetic at the peak, or memory that moves each
operand once at full bandwidth, whichever takes longer.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpubench.hardware.metrics import arithmetic_intensity
from gpubench.hardware.peaks import CORES, TENSOR_CORES, find_peak, peak_gflops
from gpubench.model import Device, Problem


@dataclass(frozen=True, kw_only=True)
class Roofline:
    """The two limits of a problem on a device."""

    bound: str
    """`arithmetic` or `memory`, whichever takes longer."""

    bound_us: float
    """The least time."""

    arithmetic_us: float
    memory_us: float
    peak_gflops: float
    peak_unit: str
    """Which unit has that peak: `cores` or `tensor cores`."""

    cores_share: float | None
    """The cores' peak over that peak, 0 to 1; None where they do not compute in this mode."""

    memory_gbytes_per_s: float
    arithmetic_intensity: float
    """Operations per byte that must move."""

    ridge_flop_per_byte: float
    """The intensity at which both limits take equally long."""


def roofline(problem: Problem, device: Device, mode: str) -> Roofline | None:
    """The bound of a problem computed in `mode`; None where peak or bandwidth is not known."""
    peak = peak_gflops(device, mode)
    bandwidth = device.memory_bandwidth_gbytes_per_s
    if not peak or not bandwidth:
        return None
    of_cores = find_peak(device, mode, CORES)
    cores = of_cores.gflops if of_cores else None
    arithmetic_us = problem.flops / peak / 1e3
    memory_us = problem.bytes / bandwidth / 1e3
    return Roofline(
        bound="arithmetic" if arithmetic_us >= memory_us else "memory",
        bound_us=max(arithmetic_us, memory_us),
        arithmetic_us=arithmetic_us,
        memory_us=memory_us,
        peak_gflops=peak,
        peak_unit=CORES if cores == peak else TENSOR_CORES,
        cores_share=cores / peak if cores else None,
        memory_gbytes_per_s=bandwidth,
        arithmetic_intensity=arithmetic_intensity(problem),
        ridge_flop_per_byte=peak / bandwidth,
    )
