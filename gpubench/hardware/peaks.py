"""Theoretical peaks: multiprocessors × operations per clock of a multiprocessor × clock.

`RATES` is the one table; a further precision is a row there. A capability that is not listed has no
peak: never a guess.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpubench.model import Device

Capability = tuple[int, int]

CORES, TENSOR_CORES = "cores", "tensor cores"

SOURCES = {
    CORES: "CUDA C++ Programming Guide, arithmetic instructions",
    TENSOR_CORES: "NVIDIA architecture white papers, dense",
}


@dataclass(frozen=True)
class Rate:
    """What a multiprocessor computes per clock in one arithmetic on one kind of unit."""

    arithmetic: str
    """A dtype, or tf32. Sums are in float32 for tf32 and narrower floats, in int32 for int8."""

    unit: str
    operations_per_clock: dict[Capability, int]
    """By compute capability; a multiply-add counts as two operations."""

    geforce_halves: bool = False
    """GeForce products reach half of it: their tensor cores add in float32 at half the rate of the
    professional products of the same capability (RTX 3090 and A40, RTX 4090 and L40S)."""


def _lanes(table: dict[Capability, int]) -> dict[Capability, int]:
    """Multiply-add lanes, two operations each."""
    return {capability: 2 * lanes for capability, lanes in table.items()}


_CAPABILITIES_3 = ((3, 0), (3, 2), (3, 5), (3, 7))
_CAPABILITIES_5 = ((5, 0), (5, 2), (5, 3))
_64_LANES = ((6, 0), (7, 0), (7, 2), (7, 5), (8, 0))
_128_LANES = (
    *_CAPABILITIES_5,
    *((6, 1), (6, 2), (8, 6), (8, 7), (8, 9), (9, 0)),
    *((10, 0), (10, 3), (11, 0), (12, 0), (12, 1)),
)
_64_INT_LANES = ((7, 0), (7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0))
_BITS_16 = {(8, 0): 2048, (8, 6): 1024, (8, 9): 1024, (9, 0): 4096, (10, 0): 8192, (12, 0): 1024}
"""16-bit floats on tensor cores."""

RATES = (
    Rate(
        "float32",
        CORES,
        _lanes(
            {(1, 0): 8, (1, 1): 8, (1, 2): 8, (1, 3): 8, (2, 0): 32, (2, 1): 48}
            | dict.fromkeys(_CAPABILITIES_3, 192)
            | dict.fromkeys(_64_LANES, 64)
            | dict.fromkeys(_128_LANES, 128)
        ),
    ),
    Rate(
        "float64",
        CORES,
        _lanes(
            {(2, 0): 16, (3, 5): 64}
            | dict.fromkeys(_CAPABILITIES_5, 4)
            | {(6, 0): 32, (6, 1): 4, (7, 0): 32, (7, 5): 2, (8, 0): 32, (8, 6): 2, (8, 9): 2}
            | {(9, 0): 64, (10, 0): 64, (12, 0): 2}
        ),
    ),
    Rate(
        "int32",
        CORES,
        _lanes(dict.fromkeys(_CAPABILITIES_3, 32) | dict.fromkeys(_64_INT_LANES, 64)),
    ),
    Rate("float64", TENSOR_CORES, {(8, 0): 128, (9, 0): 256, (10, 0): 128}),
    Rate(
        "tf32",
        TENSOR_CORES,
        {(8, 0): 1024, (8, 6): 512, (8, 9): 512, (9, 0): 2048, (10, 0): 4096, (12, 0): 512},
        geforce_halves=True,
    ),
    Rate("float16", TENSOR_CORES, {(7, 0): 1024, (7, 5): 1024} | _BITS_16, geforce_halves=True),
    Rate("bfloat16", TENSOR_CORES, _BITS_16, geforce_halves=True),
    Rate(
        "int8",
        TENSOR_CORES,
        {(7, 5): 2048, (8, 0): 4096, (8, 6): 2048, (8, 9): 2048}
        | {(9, 0): 8192, (10, 0): 16384, (12, 0): 2048},
    ),
    Rate(
        "float8",
        TENSOR_CORES,
        {(8, 9): 2048, (9, 0): 8192, (10, 0): 16384, (12, 0): 2048},
        geforce_halves=True,
    ),
)
"""One row for each arithmetic and unit. Sources: `SOURCES`, by unit."""

TENSOR_CLOCKS_MHZ = {(9, 0): {"H100 PCIe": 1620.0, "": 1830.0}, (10, 0): {"": 1856.0}}
"""The clock of the datasheets' tensor core figures where it is below the highest, by capability and
part of the product's name: the lowest that fits.

GH100's stand in NVIDIA's H100 white paper. B200's follows from the HGX B200 datasheet: 2,250
TFLOP/s a GPU in 16 bits, over 148 multiprocessors × 8192 operations. Float64 on tensor cores is at
the highest clock, as the cores are: 66.9 TFLOP/s at 1980 MHz for GH100, 37 at 1965 for B200.
"""


@dataclass(frozen=True, kw_only=True)
class Peak:
    """A theoretical rate and how it came about."""

    arithmetic: str
    unit: str
    gflops: float | None
    """None: not known for this device."""

    operations_per_clock: int | None
    """Of one multiprocessor; None: not listed."""

    clock_mhz: float | None
    """The clock that it is the rate at; None: not known."""

    derivation: str
    """The multiplication with its source, or why there is none."""


def peaks(device: Device, clock_mhz: float | None = None) -> list[Peak]:
    """Every peak of a device, the unknown ones with their reason.

    At `clock_mhz`, by default the clock of the datasheet's figures.
    """
    return [_peak(device, rate, clock_mhz) for rate in RATES]


def find_peak(device: Device, arithmetic: str, unit: str) -> Peak | None:
    """The peak of one kind of unit; None if the table has no such row."""
    found = (peak for peak in peaks(device) if (peak.arithmetic, peak.unit) == (arithmetic, unit))
    return next(found, None)


def peak_gflops(device: Device, dtype: str, clock_mhz: float | None = None) -> float | None:
    """What a product's rate is a percentage of: the fastest unit that computes exactly in `dtype`.

    For float64 that is the tensor cores where they have float64; float32 has only the cores (TF32
    is another arithmetic). At `clock_mhz`, by default the clock of the datasheet's figures.
    """
    found = [peak.gflops for peak in peaks(device, clock_mhz) if peak.arithmetic == dtype]
    return max(filter(None, found), default=None)


def ridge_flop_per_byte(device: Device, dtype: str) -> float | None:
    """Arithmetic intensity at which memory and arithmetic take equally long (roofline model)."""
    peak = peak_gflops(device, dtype)
    bandwidth = device.memory_bandwidth_gbytes_per_s
    return peak / bandwidth if peak and bandwidth else None


def _peak(device: Device, rate: Rate, clock_mhz: float | None) -> Peak:
    capability = device.compute_capability
    per_clock = rate.operations_per_clock.get(capability) if capability else None
    if per_clock and rate.geforce_halves and "GeForce" in device.name:
        per_clock //= 2
    datasheet_mhz = _datasheet_clock_mhz(device, rate)
    mhz = clock_mhz or datasheet_mhz
    gflops = device.multiprocessors * per_clock * mhz / 1e3 if per_clock and mhz else None
    if capability is None:
        derivation = "not a CUDA device"
    elif per_clock is None:
        name = ".".join(map(str, capability))
        derivation = f"no {rate.arithmetic} on {rate.unit} listed for capability {name}"
    elif not mhz:
        derivation = "the clock is not known"
    else:
        lowered = not clock_mhz and datasheet_mhz != device.sm_clock_mhz
        why = " (the datasheet's for tensor cores)" if lowered else ""
        derivation = (
            f"{device.multiprocessors} SM × {per_clock} op/clock × {mhz:g} MHz{why}; "
            f"{SOURCES[rate.unit]}"
        )
    return Peak(
        arithmetic=rate.arithmetic,
        unit=rate.unit,
        gflops=gflops,
        operations_per_clock=per_clock,
        clock_mhz=mhz,
        derivation=derivation,
    )


def _datasheet_clock_mhz(device: Device, rate: Rate) -> float | None:
    """The highest clock, or the lower one of the datasheet's tensor core figures."""
    highest_mhz, capability = device.sm_clock_mhz, device.compute_capability
    if not highest_mhz or rate.unit == CORES or rate.arithmetic == "float64":
        return highest_mhz
    lower = TENSOR_CLOCKS_MHZ.get(capability, {}) if capability else {}
    return min((highest_mhz, *(mhz for name, mhz in lower.items() if name in device.name)))
