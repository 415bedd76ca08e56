"""Computes the theoretical peaks of devices.

A peak is the number of multiprocessors, times the operations of a multiprocessor per clock, times
the clock. The table `RATES` has a row for each precision. For a capability that is not listed, the
peak is unknown.
"""

from dataclasses import dataclass

from gpubench.model import PRECISIONS, Device

CORES, TENSOR_CORES = "cores", "tensor cores"

SOURCES = {
    CORES: "CUDA C++ Programming Guide, arithmetic instructions",
    TENSOR_CORES: "NVIDIA architecture white papers, dense",
}

_CAPABILITIES_3 = ((3, 0), (3, 2), (3, 5), (3, 7))
_CAPABILITIES_5 = ((5, 0), (5, 2), (5, 3))
_64_LANES = ((6, 0), (7, 0), (7, 2), (7, 5), (8, 0))
_128_LANES = (
    *_CAPABILITIES_5,
    (6, 1), (6, 2), (8, 6), (8, 7), (8, 9), (9, 0),
    (10, 0), (10, 3), (11, 0), (12, 0), (12, 1),
)  # fmt: skip
_64_INT_LANES = ((7, 0), (7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0))
_BITS_16 = {(8, 0): 2048, (8, 6): 1024, (8, 9): 1024, (9, 0): 4096, (10, 0): 8192, (12, 0): 1024}
"""Maps each capability to the operations per clock that the tensor cores of a multiprocessor do on
16-bit floats."""

RATES: dict[tuple[str, str], dict[tuple[int, int], int]] = {
    ("float32", CORES): {(1, 0): 16, (1, 1): 16, (1, 2): 16, (1, 3): 16, (2, 0): 64, (2, 1): 96}
    | dict.fromkeys(_CAPABILITIES_3, 384)
    | dict.fromkeys(_64_LANES, 128)
    | dict.fromkeys(_128_LANES, 256),
    ("float64", CORES): {(2, 0): 32, (3, 5): 128, (6, 0): 64, (6, 1): 8, (7, 0): 64, (7, 5): 4}
    | dict.fromkeys(_CAPABILITIES_5, 8)
    | {(8, 0): 64, (8, 6): 4, (8, 9): 4, (9, 0): 128, (10, 0): 128, (12, 0): 4},
    ("int32", CORES): dict.fromkeys(_CAPABILITIES_3, 64) | dict.fromkeys(_64_INT_LANES, 128),
    ("float64", TENSOR_CORES): {(8, 0): 128, (9, 0): 256, (10, 0): 128},
    ("tf32", TENSOR_CORES): {(8, 0): 1024, (8, 6): 512, (8, 9): 512}
    | {(9, 0): 2048, (10, 0): 4096, (12, 0): 512},
    **{
        (name, TENSOR_CORES): {(7, 0): 1024, (7, 5): 1024} | _BITS_16
        for name in ("float16", "float16_sum16")
    },
    ("bfloat16", TENSOR_CORES): _BITS_16,
    **{
        (f"bf16x{products}", TENSOR_CORES): {at: rate // products for at, rate in _BITS_16.items()}
        for products in (3, 6)
    },
    ("int8", TENSOR_CORES): {(7, 5): 2048, (8, 0): 4096, (8, 6): 2048, (8, 9): 2048}
    | {(9, 0): 8192, (10, 0): 16384, (12, 0): 2048},
    ("float8_e4m3", TENSOR_CORES): {(8, 9): 2048, (9, 0): 8192, (10, 0): 16384, (12, 0): 2048},
}
"""Operations per clock of a multiprocessor, by arithmetic (a dtype, or tf32) and unit, and by
compute capability. A multiply-add counts as two operations. Sums are in float32 for tf32 and
narrower floats except float16_sum16, and in int32 for int8. `SOURCES` has the sources by unit."""

INSTRUCTIONS = {"bf16x3": "bfloat16", "bf16x6": "bfloat16"}
"""Maps each arithmetic in parts to the arithmetic of the matrix instructions that multiply parts.
An operation in `RATES` takes several operations of these instructions."""

HALVES = {
    "GeForce": {"tf32", "float16", "bfloat16", "bf16x3", "bf16x6", "float8_e4m3"},
    "A10G": {"tf32", "float16", "float16_sum16", "bfloat16", "bf16x3", "bf16x6", "int8"},
}
"""Maps a substring of a GPU's name to the arithmetic whose rate on tensor cores is half of the rate
in `RATES`. GeForce GPUs add in float32 at half the rate of professional GPUs of the same capability
(RTX 3090 and A40, RTX 4090 and L40S). The A10G, which is made for one cloud, has half of the A10's
rates (70 TFLOP/s in 16 bits from 80 multiprocessors at 1710 MHz)."""

TENSOR_CLOCKS_MHZ = {
    (9, 0): {"H100 PCIe": 1620.0, "": 1830.0},
    (10, 0): {"NVIDIA B200": 1856.0, "GB200": 2008.0},
}
"""Clock in MHz at which datasheets state the rates of tensor cores, by capability and by a
substring of the GPU's name. The table has only GPUs whose highest clock is above this clock. If
several substrings fit, the lowest clock is used.

The clocks of GH100 are in NVIDIA's H100 white paper. The clock of B200 follows from the HGX B200
datasheet: 2,250 TFLOP/s per GPU in 16 bits, over 148 multiprocessors × 8192 operations. The clock
of GB200 follows from the datasheet of the GB200 NVL72: 2,500 TFLOP/s per GPU, over 152 × 8192.
Float64 on tensor cores runs at the highest clock, as the cores do: 66.9 TFLOP/s at 1980 MHz for
GH100, and 37 TFLOP/s at 1965 MHz for B200."""


@dataclass(frozen=True, kw_only=True)
class Peak:
    """A theoretical rate and its derivation. None means that a value is unknown for this device."""

    arithmetic: str
    unit: str
    gflops: float | None
    operations_per_clock: int | None  # operations per clock of one multiprocessor
    clock_mhz: float | None
    derivation: str  # the multiplication with its source, or why the rate is unknown


def peaks(device: Device, clock_mhz: float | None = None) -> list[Peak]:
    """Return every peak of a device. For an unknown peak, `derivation` has the reason.

    `clock_mhz` is by default the clock of the datasheet's figures.
    """
    return [_peak(device, arithmetic, unit, clock_mhz) for arithmetic, unit in RATES]


def find_peak(device: Device, arithmetic: str, unit: str) -> Peak | None:
    """Return the peak of an arithmetic on one kind of unit, or None if `RATES` has no such row."""
    arithmetic = PRECISIONS[arithmetic].rate_of if arithmetic in PRECISIONS else arithmetic
    return _peak(device, arithmetic, unit, None) if (arithmetic, unit) in RATES else None


def fma_rate(dtype: str) -> str:
    """Return the name of the fact that states a device's measured rate of multiply-adds."""
    return f"measured_{dtype}_fma_gflops"


def peak_gflops(device: Device, dtype: str, clock_mhz: float | None = None) -> float | None:
    """Return the peak of the fastest unit that computes in `dtype`, for percentages of the peak.

    For float64, the fastest unit is the tensor cores if they compute in float64. For float32, the
    fastest unit is the cores, because TF32 is another arithmetic. `clock_mhz` is by default the
    clock of the datasheet's figures. The peak of a CPU is its measured rate of multiply-adds, or
    None if this rate was not measured.
    """
    if device.compute_capability is None:
        measured: float | None = device.facts.get(fma_rate(dtype))
        return measured
    arithmetic = PRECISIONS[dtype].rate_of if dtype in PRECISIONS else dtype
    rates = [peak.gflops for peak in peaks(device, clock_mhz) if peak.arithmetic == arithmetic]
    return max(filter(None, rates), default=None)


def ridge_flop_per_byte(device: Device, dtype: str) -> float | None:
    """Return the arithmetic intensity at which memory and arithmetic take equally long."""
    peak = peak_gflops(device, dtype)
    bandwidth = device.memory_bandwidth_gbytes_per_s
    if device.compute_capability is None:
        bandwidth = device.facts.get("measured_copy_gbytes_per_s")
    return peak / bandwidth if peak and bandwidth else None


def _peak(device: Device, arithmetic: str, unit: str, clock_mhz: float | None) -> Peak:
    capability = device.compute_capability
    per_clock = RATES[arithmetic, unit].get(capability) if capability else None
    if per_clock and any(
        product in device.name and arithmetic in halved for product, halved in HALVES.items()
    ):
        per_clock //= 2
    datasheet_mhz = _datasheet_clock_mhz(device, arithmetic, unit)
    mhz = clock_mhz or datasheet_mhz
    gflops = device.multiprocessors * per_clock * mhz / 1e3 if per_clock and mhz else None
    if capability is None:
        derivation = "not a CUDA device"
    elif per_clock is None:
        name = ".".join(map(str, capability))
        derivation = f"no rate of {arithmetic} on {unit} is listed for compute capability {name}"
    elif not mhz:
        derivation = "the clock is not known"
    else:
        lowered = not clock_mhz and datasheet_mhz != device.sm_clock_mhz
        why = " (the datasheet's for tensor cores)" if lowered else ""
        derivation = (
            f"{device.multiprocessors} SM × {per_clock} op/clock × {mhz:g} MHz{why}; "
            f"{SOURCES[unit]}"
        )
    return Peak(
        arithmetic=arithmetic,
        unit=unit,
        gflops=gflops,
        operations_per_clock=per_clock,
        clock_mhz=mhz,
        derivation=derivation,
    )


def _datasheet_clock_mhz(device: Device, arithmetic: str, unit: str) -> float | None:
    """Return the clock in MHz for which the datasheet states a rate.

    This is the GPU's highest clock, or a lower clock for tensor cores.
    """
    highest_mhz, capability = device.sm_clock_mhz, device.compute_capability
    if not highest_mhz or unit == CORES or arithmetic == "float64":
        return highest_mhz
    lower = TENSOR_CLOCKS_MHZ.get(capability, {}) if capability else {}
    return min((highest_mhz, *(mhz for name, mhz in lower.items() if name in device.name)))
