"""Computes rates, ratios and the roofline from a problem and a time, by pure functions."""

import math
from dataclasses import dataclass

from gpubench.hardware.peaks import CORES, TENSOR_CORES, find_peak, peak_gflops
from gpubench.model import Device, Problem

LOADED_BYTES_PER_CLOCK = 128
"""Maximum number of bytes per clock that enter a multiprocessor. This is the width of the L1 cache
since Volta. L2 delivers fewer bytes (CUDA C++ Programming Guide and NVIDIA's architecture white
papers)."""

EMULATING_PRODUCTS = {"float32": 6, "float64": 28, "int32": 10}
"""Minimum number of products of 8-bit parts that replace a product of a wider type and keep all
bits of the operands. An operand of 24, 53 or 32 bits has p = 3, 7 or 4 parts, so p·(p+1)/2 products
matter. The weight of all other products is negligible."""


def gflops(problem: Problem, time_us: float) -> float:
    """Return the rate at which a problem's operations are done, in 10⁹ operations per second."""
    return problem.flops / time_us / 1e3


def gbytes_per_s(problem: Problem, time_us: float) -> float:
    """Return the memory rate in GB/s if each operand and the result move exactly once."""
    return problem.bytes / time_us / 1e3


def arithmetic_intensity(problem: Problem) -> float:
    """Return the number of operations per byte that must move."""
    return problem.flops / problem.bytes


def cgma(problem: Problem, reuse: tuple[int, int]) -> float:
    """Return the compute to global memory access ratio: operations per element loaded or stored.

    `reuse` has the numbers of rows and columns of C that share their loads. Each of K steps takes
    rows + columns loads for 2·rows·columns operations, and each element is stored once (Kirk and
    Hwu, Programming Massively Parallel Processors). The ratio is 1 for a kernel without tiling, and
    T for tiles of T×T. A vector counts as a matrix of one column, so `rows` elements of the result
    share a load of x.
    """
    rows, columns = reuse
    accesses = problem.terms * (rows + columns) + rows * columns
    return 2 * rows * columns * problem.terms / accesses


def percent(part: float | None, whole: float | None) -> float | None:
    """Return 100 · part / whole, or None if either is missing."""
    return 100 * part / whole if part is not None and whole else None


def least_us(problem: Problem, device: Device) -> float:
    """Return a lower bound of a launch's time, or 0 if the device's figures are unknown.

    The bound is the longest of three times. The first is the time of the operations at the highest
    rate and clock. The second is the time to load the operands through the load paths of all
    multiprocessors. The third is the time to read those bytes of the operands from memory that
    exceed the last-level cache.
    """
    clock_mhz = device.sm_clock_mhz
    if not clock_mhz:
        return 0.0
    *of_inputs, _ = problem.bytes_of_arrays
    inputs = sum(of_inputs)
    rates = [peak_gflops(device, problem.dtype, clock_mhz) or math.inf]
    if problem.dtype in EMULATING_PRODUCTS:
        narrow = peak_gflops(device, "int8", clock_mhz) or 0.0
        rates.append(narrow / EMULATING_PRODUCTS[problem.dtype])
    loads_us = inputs / (device.multiprocessors * LOADED_BYTES_PER_CLOCK * clock_mhz)
    bandwidth = device.memory_bandwidth_gbytes_per_s or math.inf
    memory_us = (inputs - device.l2_bytes) / bandwidth / 1e3
    return max(problem.flops / max(rates) / 1e3, loads_us, memory_us)


@dataclass(frozen=True, kw_only=True)
class Roofline:
    """The minimum time of a problem on a device, and which of two limits sets it.

    The limits are arithmetic at the peak, and memory that moves each operand once at full bandwidth
    (Williams, Waterman, Patterson: Roofline, 2009).
    """

    bound: str  # `arithmetic` or `memory`, whichever takes longer
    bound_us: float
    arithmetic_us: float
    memory_us: float
    peak_gflops: float
    peak_unit: str  # `cores` or `tensor cores`
    cores_share: float | None
    """Peak of the cores divided by the roofline's peak, 0 to 1. None if the cores do not compute in
    this mode."""

    memory_gbytes_per_s: float
    arithmetic_intensity: float
    ridge_flop_per_byte: float  # the intensity at which both limits take equally long


def roofline(problem: Problem, device: Device, mode: str) -> Roofline | None:
    """Return the roofline of a problem in `mode`, or None if peak or bandwidth is unknown."""
    peak, bandwidth = peak_gflops(device, mode), device.memory_bandwidth_gbytes_per_s
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
