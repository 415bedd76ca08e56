"""Prints the ranked devices, the reasons, and the differences for `gpubench fleet`."""

import json
from collections import Counter
from dataclasses import asdict
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from gpubench.commands.fleet.verdicts import Fleet, FleetVerdict, UnitFinding
from gpubench.text import counted
from gpubench.view.numbers import number
from gpubench.view.tables import table

SHOWN = 32  # maximum number of fine devices in the table; the JSON lists all devices
NAMED = 3  # maximum number of devices that are named for a value; the others are counted
COARSE = 0.10  # a unit is listed if its smallest detectable slowdown is above this
COLOURS = {FleetVerdict.WRONG: "red", FleetVerdict.SLOW: "red", FleetVerdict.UNKNOWN: "yellow"}


def as_json(fleet: Fleet) -> str:
    """Return the verdicts, the differences and the exit code as JSON."""
    report: dict[str, Any] = {
        "exit_code": fleet.exit_code,
        "devices": [asdict(device) for device in fleet.devices],
        "differences": fleet.differences,
        "detectable": fleet.detectable,
    }
    return json.dumps(report, indent=2)


def as_tables(fleet: Fleet) -> RenderableType:
    """Return a table that ranks the devices, the reasons, and the configurations that differ."""
    parts: list[RenderableType] = [_ranking(fleet)]
    for device in fleet.devices:
        if device.reasons:
            parts.append(
                Text(f"\n{device.label}: {device.verdict}", COLOURS.get(device.verdict, ""))
            )
            slow = [finding for finding in device.units if finding.verdict == FleetVerdict.SLOW]
            parts += [Text(f"  {_unit(finding)}") for finding in slow]
            parts += [Text(f"  {reason}") for reason in device.reasons]
    if fleet.differences:
        grid = table("configuration", "value", "devices", "which", left=None)
        for fact, values in fleet.differences.items():
            for value, labels in sorted(values.items(), key=lambda item: len(item[1])):
                left = len(labels[NAMED:])
                more = f" and {left} more" if left else ""
                grid.add_row(fact, value, str(len(labels)), ", ".join(labels[:NAMED]) + more)
        parts += [Text("\nConfigurations differ", style="bold"), grid]
    parts += [Text(f"\n{line}") for line in _resolution(fleet)]
    counts = Counter(device.verdict for device in fleet.devices)
    said = ", ".join(f"{counts[verdict]} {verdict}" for verdict in FleetVerdict if counts[verdict])
    return Group(*parts, Text(f"\n{counted(len(fleet.devices), 'device')}: {said}"))


def _resolution(fleet: Fleet) -> list[str]:
    """Return lines on the slowdowns that the comparison can show, given the devices' spread."""
    if not fleet.detectable:
        return []
    smallest = min(fleet.detectable.values())
    coarse = {unit: part for unit, part in fleet.detectable.items() if part > COARSE}
    quietest = f"In the quietest unit, a device that is {100 * smallest:.1f} % slow"
    lines = [f"{quietest} is found in 9 of 10 cases"]
    if coarse:
        worst = "; ".join(
            f"{unit} {100 * part:.0f} %"
            for unit, part in sorted(coarse.items(), key=lambda item: -item[1])
        )
        lines.append(
            "There are too few devices, or they differ too much, to show that one is 10 % slow. "
            f"Smallest slowdowns that these units show: {worst}"
        )
    return lines


def _ranking(fleet: Fleet) -> RenderableType:
    texts = ("host", "slot", "UUID", "verdict", "slowest unit")
    grid = table(*texts, "% of others", "% of before", left={*texts})
    fine = 0
    for device in fleet.devices:
        fine += device.verdict == FleetVerdict.FINE
        if fine <= SHOWN:
            cells = [device.host, device.slot, device.uuid, str(device.verdict), "", "", ""]
            if worst := device.worst:
                speeds = (worst.percent_of_others, worst.percent_of_before)
                cells[4:] = f"{worst.unit}, {worst.phase}", *(number(each, 1) for each in speeds)
            grid.add_row(*(Text(cell, COLOURS.get(device.verdict, "")) for cell in cells))
    hidden = max(0, fine - SHOWN)
    return Group(grid, Text(f"and {hidden} fine devices" if hidden else ""))


def _unit(finding: UnitFinding) -> str:
    """Return a line on a slow unit: the unit, the phase, the time, and the relative speed."""
    than = "its own earlier" if finding.since_before else "the others'"
    percent = finding.percent_of_before if finding.since_before else finding.percent_of_others
    time = f"{finding.unit}, {finding.phase}: {finding.median_us:.4g} µs"
    return f"{time}, {number(percent, 1)} % of {than} speed"
