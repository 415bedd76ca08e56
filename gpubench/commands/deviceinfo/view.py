"""What `gpubench deviceinfo` prints: a device as tables and as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gpubench.backends.cpu import measure_cpu
from gpubench.backends.find import find_devices
from gpubench.hardware.peaks import peaks, ridge_flop_per_byte
from gpubench.model import DTYPES, Device
from gpubench.options import read_sweep
from gpubench.view.tables import console, number, table


def print_deviceinfo(device: str, *, measure: bool, as_json: bool) -> None:
    """Print the devices that `--device` names, as tables or as JSON."""
    devices, missing = find_devices(read_sweep({"device": device}).device)
    if measure:
        devices = [with_ceilings(found) for found in devices]
    if as_json:
        print(json.dumps(device_json(devices, missing), indent=2))
        return
    screen = console()
    for found in devices:
        screen.print(as_tables(found))
    if missing:
        screen.print(f"\nCUDA: {missing}", markup=False)


def with_ceilings(
    device: Device, cpu_ceilings: Callable[[], dict[str, float]] = measure_cpu
) -> Device:
    """The device with its measured ceilings among its facts."""
    if device.backend == "cpu":
        return replace(device, facts=device.facts | cpu_ceilings())
    from gpubench.backends.cuda.backend import CudaBackend

    return replace(device, facts=device.facts | CudaBackend(device.index).ceilings())


def device_json(devices: list[Device], missing: str) -> dict[str, Any]:
    """Everything known, under the names of the fields, with their units."""
    return {
        "devices": [
            asdict(device)
            | {
                "peaks": list(map(asdict, peaks(device) if device.compute_capability else ())),
                "ridge_flop_per_byte": {
                    dtype: ridge_flop_per_byte(device, dtype) for dtype in DTYPES
                },
            }
            for device in devices
        ],
        "cuda_missing": missing or None,
    }


def as_tables(device: Device) -> RenderableType:
    """Properties, then peaks with their derivation."""
    where = f"cuda:{device.index}" if device.backend == "cuda" else "CPU"
    properties = table("property", "value", left=None)
    for name, value in _properties(device):
        properties.add_row(name, value)
    tables = [properties, _peaks(device)] if device.compute_capability else [properties]
    return Group(Text(f"\n{device.name} ({where})", style="bold"), *tables)


def _properties(device: Device) -> list[tuple[str, str]]:
    properties: list[tuple[str, str]] = []
    if device.compute_capability:
        properties += [
            ("compute capability", ".".join(map(str, device.compute_capability))),
            ("multiprocessors", str(device.multiprocessors)),
            ("SM clock, MHz", number(device.sm_clock_mhz, 0)),
            ("bandwidth, GB/s", number(device.memory_bandwidth_gbytes_per_s, 0)),
            ("L2 cache, bytes", number(device.l2_bytes, 0)),
        ]
    named = device.facts | {f"version of {name}": v for name, v in device.versions.items()}
    return properties + [(name.replace("_", " "), _plain(value)) for name, value in named.items()]


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return number(value, 0)
    if isinstance(value, dict):
        return ", ".join(f"{key} {_plain(item)}" for key, item in value.items())
    if isinstance(value, list):
        return "; ".join(_plain(item) for item in value)
    return str(value)


def _peaks(device: Device) -> Table:
    listing = table("arithmetic", "unit", "GFLOP/s", "ridge, FLOP/byte", "from", left=None)
    bandwidth = device.memory_bandwidth_gbytes_per_s
    for peak in peaks(device):
        ridge = peak.gflops / bandwidth if peak.gflops and bandwidth else None
        listing.add_row(
            peak.arithmetic, peak.unit, number(peak.gflops, 0), number(ridge, 1), peak.derivation
        )
    return listing
