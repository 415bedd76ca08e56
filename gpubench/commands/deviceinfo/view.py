"""Describes a device for `gpubench deviceinfo`, as tables and as JSON."""

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from gpubench.backends import backends, device_label, find_devices
from gpubench.backends.cpu.gauge import highest_rates
from gpubench.hardware.peaks import peaks, ridge_flop_per_byte
from gpubench.model import CORE_DTYPES, DTYPES, Device
from gpubench.options import read_sweep
from gpubench.view.numbers import WHOLE, number, rate, with_unit
from gpubench.view.tables import Table, console, table


def print_deviceinfo(device: str, *, measure: bool, as_json: bool) -> None:
    """Print the devices that `--device` names, as tables or as JSON."""
    devices, missing = find_devices(read_sweep({"device": device}).device)
    devices = [with_ceilings(each) if measure else each for each in devices]
    if as_json:
        print(json.dumps(device_json(devices, missing), indent=2))
        return
    screen = console()
    for described in devices:
        screen.print(as_tables(described))
    for name, reason in missing.items():
        screen.print(f"\n{name.upper()}: {reason}", markup=False)


def with_ceilings(device: Device) -> Device:
    """Measure the maximum rates of memory and arithmetic, and add them to the device's facts."""
    entry = backends()[device.backend]
    gauge = entry.open(device.index, entry.timers[0]).gauge
    if device.backend == "cpu":
        rates = highest_rates(device, CORE_DTYPES, gauge.ceilings, kept=False)
    else:
        rates = gauge.ceilings()
    return replace(device, facts=device.facts | rates)


def device_json(devices: list[Device], missing: Mapping[str, Exception]) -> dict[str, Any]:
    """Return all facts of the devices. The names of the facts include the units."""
    described = [
        {
            **asdict(device),
            "peaks": [*map(asdict, peaks(device) if device.compute_capability else ())],
            "ridge_flop_per_byte": {dtype: ridge_flop_per_byte(device, dtype) for dtype in DTYPES},
        }
        for device in devices
    ]
    numbered = (entry.name for entry in backends().values() if entry.is_numbered)
    reasons = dict.fromkeys(numbered) | {name: str(why) for name, why in missing.items()}
    return {"devices": described, **{f"{name}_missing": why for name, why in reasons.items()}}


def as_tables(device: Device) -> RenderableType:
    """Return a table of the device's properties, and a table of its peaks with their derivation."""
    properties: dict[str, object] = {}
    if device.compute_capability:
        properties = {
            "compute capability": ".".join(map(str, device.compute_capability)),
            "multiprocessors": str(device.multiprocessors),
            "SM clock, MHz": number(device.sm_clock_mhz, 0),
            "bandwidth, GB/s": number(device.memory_bandwidth_gbytes_per_s, 0),
            "L2 cache, bytes": device.l2_bytes,
        }
    properties |= device.facts
    if device.compute_capability is None:
        properties |= {
            f"{dtype}_ridge_flop_per_byte": ridge_flop_per_byte(device, dtype) for dtype in DTYPES
        }
    properties |= {f"version of {name}": value for name, value in device.versions.items()}
    listing = table("property", "value", left=None)
    for name, value in properties.items():
        if value is not None:
            listing.add_row(with_unit(name), _plain(value))
    tables = [listing, _peaks(device)] if device.compute_capability else [listing]
    return Group(Text(f"\n{device.name} ({device_label(device)})", style="bold"), *tables)


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return rate(value) if value < WHOLE else number(value, 0)
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
