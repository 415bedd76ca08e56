"""Theoretical peaks: multiprocessors × operations per clock per multiprocessor × clock.

Operations per clock per multiprocessor are from the CUDA C++ Programming Guide ("Arithmetic
Instructions", results per clock per multiprocessor; a multiply-add counts as two operations) and,
for tensor cores, from NVIDIA's architecture white papers (dense). A capability that is not listed
has no peak: never a guess.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpubench.model import Device

GUIDE = "CUDA C++ Programming Guide, arithmetic instructions"
WHITE_PAPER = "NVIDIA architecture white papers, dense"

Capability = tuple[int, int]


def _lanes(table: dict[Capability, int]) -> dict[Capability, int]:
    """Multiply-add lanes, two operations each."""
    return {capability: 2 * lanes for capability, lanes in table.items()}


_ALL_3 = ((3, 0), (3, 2), (3, 5), (3, 7))
_ALL_5 = ((5, 0), (5, 2), (5, 3))
_ALL_8_CONSUMER = ((8, 6), (8, 7), (8, 9))
_FROM_10 = ((10, 0), (10, 3), (11, 0), (12, 0), (12, 1))

OPERATIONS_PER_CLOCK: dict[tuple[str, str], dict[Capability, int]] = {
    ("float32", "cores"): _lanes(
        {(1, 0): 8, (1, 1): 8, (1, 2): 8, (1, 3): 8, (2, 0): 32, (2, 1): 48}
        | dict.fromkeys(_ALL_3, 192)
        | dict.fromkeys(_ALL_5, 128)
        | {(6, 0): 64, (6, 1): 128, (6, 2): 128, (7, 0): 64, (7, 2): 64, (7, 5): 64, (8, 0): 64}
        | dict.fromkeys(_ALL_8_CONSUMER, 128)
        | {(9, 0): 128}
        | dict.fromkeys(_FROM_10, 128)
    ),
    ("float64", "cores"): _lanes(
        {(2, 0): 16, (3, 5): 64}
        | dict.fromkeys(_ALL_5, 4)
        | {(6, 0): 32, (6, 1): 4, (7, 0): 32, (7, 5): 2, (8, 0): 32, (8, 6): 2, (8, 9): 2}
        | {(9, 0): 64, (10, 0): 64, (12, 0): 2}
    ),
    ("int32", "cores"): _lanes(
        dict.fromkeys(_ALL_3, 32)
        | {(7, 0): 64, (7, 5): 64, (8, 0): 64, (8, 6): 64, (8, 9): 64}
        | {(9, 0): 64, (10, 0): 64, (12, 0): 64}
    ),
    ("float64", "tensor cores"): {(8, 0): 128, (9, 0): 256, (10, 0): 128},
    ("tf32", "tensor cores"): {(8, 0): 1024, (9, 0): 2048, (10, 0): 4096},
    ("float16", "tensor cores"): {
        (7, 0): 1024,
        (7, 5): 1024,
        (8, 0): 2048,
        (8, 6): 1024,
        (9, 0): 4096,
        (10, 0): 8192,
    },
    ("bfloat16", "tensor cores"): {(8, 0): 2048, (8, 6): 1024, (9, 0): 4096, (10, 0): 8192},
    ("int8", "tensor cores"): {(8, 0): 4096, (9, 0): 8192},
    ("float8", "tensor cores"): {(9, 0): 8192},
}
"""By arithmetic and unit, then by compute capability."""

DATASHEET_CLOCK_MHZ = {
    ((9, 0), arithmetic): 1830.0 for arithmetic in ("tf32", "float16", "bfloat16", "int8", "float8")
}
"""Where the datasheet's figure uses a lower clock than the highest: GH100's tensor cores (but not
in float64, whose 66.9 TFLOP/s are at 1980 MHz)."""


@dataclass(frozen=True, kw_only=True)
class Peak:
    """A theoretical rate and how it came about."""

    arithmetic: str
    unit: str
    gflops: float | None
    """None: not known for this device."""

    derivation: str
    """The multiplication with its source, or why there is none."""


def peaks(device: Device) -> list[Peak]:
    """Every peak of a device, the unknown ones with their reason."""
    return [_peak(device, arithmetic, unit) for arithmetic, unit in OPERATIONS_PER_CLOCK]


def peak_gflops(device: Device, dtype: str, clock_mhz: float | None = None) -> float | None:
    """The peak a product in `dtype` is held against: the fastest unit that computes in it exactly.

    At `clock_mhz`, by default the unit's nominal clock. For float64 that is the tensor cores where
    they have float64; float32 has only the cores (TF32 is another arithmetic).
    """
    rates = [
        peak.gflops
        for unit in ("cores", "tensor cores")
        if (dtype, unit) in OPERATIONS_PER_CLOCK
        for peak in (_peak(device, dtype, unit, clock_mhz),)
        if peak.gflops is not None
    ]
    return max(rates, default=None)


def ridge_flop_per_byte(device: Device, dtype: str) -> float | None:
    """Arithmetic intensity at which memory and arithmetic take equally long (roofline model)."""
    peak = peak_gflops(device, dtype)
    bandwidth = device.memory_bandwidth_gbytes_per_s
    return peak / bandwidth if peak and bandwidth else None


def _peak(device: Device, arithmetic: str, unit: str, clock_mhz: float | None = None) -> Peak:
    capability = device.compute_capability
    if capability is None:
        return Peak(arithmetic=arithmetic, unit=unit, gflops=None, derivation="not a CUDA device")
    per_clock = OPERATIONS_PER_CLOCK[arithmetic, unit].get(capability)
    name = ".".join(map(str, capability))
    if per_clock is None:
        reason = f"no {arithmetic} on {unit} listed for capability {name}"
        return Peak(arithmetic=arithmetic, unit=unit, gflops=None, derivation=reason)
    if clock_mhz is None:
        datasheet = DATASHEET_CLOCK_MHZ.get((capability, arithmetic))
        clock_mhz = min(filter(None, (device.sm_clock_mhz, datasheet)), default=None)
    if not clock_mhz:
        return Peak(
            arithmetic=arithmetic, unit=unit, gflops=None, derivation="the clock is not known"
        )
    return Peak(
        arithmetic=arithmetic,
        unit=unit,
        gflops=device.multiprocessors * per_clock * clock_mhz / 1e3,
        derivation=(
            f"{device.multiprocessors} SM × {per_clock} op/clock × {clock_mhz:g} MHz; "
            f"{WHITE_PAPER if unit == 'tensor cores' else GUIDE}"
        ),
    )
