"""Derives the verdict on each device of a fleet, and the reasons, from the measured rows."""

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from operator import attrgetter
from typing import Any

import numpy as np

from gpubench.commands.fleet.judge import THRESHOLD, Judgement, judge
from gpubench.commands.fleet.times import UnitTime
from gpubench.commands.fleet.units import ALONE, Report
from gpubench.grouping import grouped
from gpubench.model import Status
from gpubench.stats.intervals import known_median
from gpubench.stats.moderated import Floats

COUNTERS = (
    "ecc_errors_corrected", "ecc_errors_uncorrected", "remapped_rows",
    "remapping_pending", "remapping_failed", "neighbours",
)  # fmt: skip
"""Facts that are reported unless they are 0 or empty, even if other devices have equal values."""

SLOWER_CLOCK = 0.01  # relative difference from which a lower clock is a reason
HOTTER_C = 10.0  # difference in °C from which a higher temperature is a reason

MIN_ROUNDS = 2
"""Minimum number of rounds for the verdict on a device in a unit. One round may be disturbed. A
device may have one round if its other rounds failed."""

NO_MAJORITY = "no majority to compare with: the numbers of fast and slow devices are equal"


class FleetVerdict(StrEnum):
    """The verdicts on a device, starting with the worst."""

    WRONG = "wrong"
    SLOW = "slow"
    UNKNOWN = "unknown"
    AMBIGUOUS = "ambiguous"
    FINE = "fine"


@dataclass(frozen=True, kw_only=True)
class UnitFinding:
    """The figures and the verdict of a device in one unit and phase."""

    unit: str
    phase: str
    median_us: float
    percent_of_others: float | None  # speed relative to the median of the other devices
    p_adjusted: float | None
    percent_of_before: float | None  # speed relative to the device's speed in earlier runs
    verdict: FleetVerdict
    since_before: bool = False  # whether the device is slow only relative to its earlier runs
    no_majority: bool = False  # ambiguous, because half of the devices are slow


@dataclass(frozen=True, kw_only=True)
class DeviceFinding:
    """A device, the verdict on the device, and the reasons for the verdict."""

    host: str
    slot: str
    uuid: str
    device: str
    verdict: FleetVerdict
    reasons: tuple[str, ...] = ()
    units: tuple[UnitFinding, ...] = ()

    @property
    def label(self) -> str:
        """The host and the slot, such as `node7 0000:1B:00.0`."""
        return f"{self.host} {self.slot}"

    @property
    def worst(self) -> UnitFinding | None:
        """The unit in which the device is slowest, relative to other devices or to earlier runs."""
        return min(self.units, key=_speed, default=None)


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """The devices, starting with the worst, and the facts in which their configurations differ."""

    devices: list[DeviceFinding]
    differences: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    """Maps each fact that has several values to these values, and each value to the labels of the
    devices that have it."""

    detectable: dict[str, float] = field(default_factory=dict)
    """Maps a unit and phase to the smallest slowdown that is found in 9 of 10 cases. 0.05 stands
    for 5 %."""

    @property
    def exit_code(self) -> int:
        """The exit code for the worst verdict. `gpubench fleet --help` lists the codes."""
        verdicts = {device.verdict for device in self.devices}
        if verdicts & {FleetVerdict.WRONG, FleetVerdict.SLOW}:
            return 1
        if FleetVerdict.UNKNOWN in verdicts or not verdicts:
            return 3
        return 4 if FleetVerdict.AMBIGUOUS in verdicts else 0


def assess(
    reports: Sequence[Report], earlier: Iterable[UnitTime] = (), threshold: float = THRESHOLD
) -> Fleet:
    """Return the verdicts on all devices. `earlier` has the rows of earlier runs on any devices."""
    identity = attrgetter("identity")
    rows = [row for report in reports for row in report.times]
    by_device = grouped(rows, identity)
    of_device = grouped(reports, identity)
    units = [*dict.fromkeys((row.device, row.unit, row.phase) for row in rows)]
    times = _times(of_device, units, by_device)
    before = grouped(earlier, identity)
    alone = [
        units.index(at) if (at := (device, unit, ALONE)) in units else index
        for index, (device, unit, _) in enumerate(units)
    ]
    history = _times(of_device, units, before) if before else None
    judgement = judge(times, history, threshold, alone)
    wrong = _differing_bits(of_device)
    configurations: dict[str, dict[str, Any]] = {
        name: next((each.configuration for each in reversed(own) if each.configuration), {})
        for name, own in of_device.items()
    }
    devices = []
    for number, (name, own_reports) in enumerate(of_device.items()):
        own = by_device.get(name, [])
        findings = [
            _finding(unit, number, index, judgement, times)
            for index, unit in enumerate(units)
            if not np.isnan(times[number, index]).all()
        ]
        first = own_reports[0].member
        reasons = [*wrong.get(name, ())]
        reasons += (f"{row.unit}: {row.reason}" for row in own if row.status != Status.OK)
        reasons += (report.error for report in own_reports if report.error)
        verdict = _verdict(findings, reasons, own, name in wrong)
        if verdict == FleetVerdict.SLOW:
            slow = [finding for finding in findings if finding.verdict == FleetVerdict.SLOW]
            others = [row for row in rows if row.identity != name]
            reasons += explain(slow, own, others, name, configurations)
        devices.append(
            DeviceFinding(
                host=first.hostname,
                slot=first.slot,
                uuid=str(first.device.facts.get("uuid") or ""),
                device=first.device.name,
                verdict=verdict,
                reasons=tuple(dict.fromkeys(reasons)),
                units=tuple(findings),
            )
        )
    order = list(FleetVerdict)
    devices.sort(key=lambda d: (order.index(d.verdict), _speed(d.worst), d.host, d.slot))
    labels = {name: own[0].member.label for name, own in of_device.items()}
    detectable = {
        f"{unit}, {phase}": float(np.expm1(judgement.detectable[index]))
        for index, (_, unit, phase) in enumerate(units)
        if np.isfinite(judgement.detectable[index])
    }
    differences = _differences(configurations, labels)
    return Fleet(devices=devices, differences=differences, detectable=detectable)


def explain(
    slow: Sequence[UnitFinding],
    rows: Sequence[UnitTime],
    others: Sequence[UnitTime],
    name: str,
    configurations: Mapping[str, Mapping[str, Any]],
) -> list[str]:
    """Return the possible reasons why a device is slow.

    The first reasons are the clock, the temperature and the throttling in the slow units. The other
    reasons are facts of the configuration that other devices do not share.
    """
    reasons: list[str] = []
    for unit in slow:
        mine = [row for row in rows if (row.unit, row.phase) == (unit.unit, unit.phase)]
        theirs = [row for row in others if (row.unit, row.phase) == (unit.unit, unit.phase)]
        mhz, usual_mhz = (
            known_median(r.sm_mhz or r.nvml_sm_mhz for r in side) for side in (mine, theirs)
        )
        if mhz and usual_mhz and mhz < (1 - SLOWER_CLOCK) * usual_mhz:
            reasons.append(f"clock {mhz:.0f} MHz in {unit.unit}, on other devices {usual_mhz:.0f}")
        hot, usual = (known_median(r.temperature_c for r in side) for side in (mine, theirs))
        if hot is not None and usual is not None and hot > usual + HOTTER_C:
            reasons.append(f"{hot:.0f} °C, other devices {usual:.0f}")
        usual_throttle = _usual(row.throttle or "" for row in theirs)
        throttles = dict.fromkeys(row.throttle for row in mine if row.throttle)
        reasons += (throttle for throttle in throttles if throttle != usual_throttle)
    for fact, value in configurations[name].items():
        words = fact.replace("_", " ")
        usual_value = _usual(facts.get(fact) for at, facts in configurations.items() if at != name)
        if fact in COUNTERS:
            if value:
                reasons.append(f"{words}: {value}")
        elif usual_value is not None and value != usual_value:
            reasons.append(f"{words} {value}, other devices {usual_value}")
    like = "clock, temperature and configuration are like those of the other devices"
    return reasons or [f"no reason found: {like if others else 'no other device was measured'}"]


def _times(
    names: Collection[str],
    units: Sequence[tuple[str | None, str, str]],
    by_device: Mapping[str, Sequence[UnitTime]],
) -> Floats:
    """Return logarithms of round medians, of shape (devices, units, rounds).

    NaN stands for a missing time.
    """
    collected: dict[tuple[int, int], list[float]] = defaultdict(list)
    place = {unit: index for index, unit in enumerate(units)}
    for number, name in enumerate(names):
        for row in by_device.get(name, ()):
            index = place.get((row.device, row.unit, row.phase))
            if row.time_us and index is not None:
                collected[number, index].append(math.log(row.time_us))
    max_rounds = max(map(len, collected.values()), default=0)
    times = np.full((len(names), len(units), max(1, max_rounds)), np.nan)
    for (number, index), logs in collected.items():
        times[number, index, : len(logs)] = logs
    return times


def _finding(
    unit: tuple[str | None, str, str], number: int, index: int, judged: Judgement, times: Floats
) -> UnitFinding:
    since_before = bool(judged.slower_than_before[number, index])
    verdict = FleetVerdict.FINE
    if np.isfinite(times[number, index]).sum() < MIN_ROUNDS:
        verdict = FleetVerdict.UNKNOWN
    elif judged.slow[number, index] or since_before:
        verdict = FleetVerdict.SLOW
    elif judged.ambiguous[number, index]:
        verdict = FleetVerdict.AMBIGUOUS
    elif np.isnan(judged.p[number, index]) and np.isnan(judged.since[number, index]):
        verdict = FleetVerdict.UNKNOWN
    return UnitFinding(
        unit=unit[1],
        phase=unit[2],
        median_us=float(np.exp(np.nanmedian(times[number, index]))),
        percent_of_others=_number(100 * np.exp(-judged.effect[number, index])),
        p_adjusted=_number(judged.p[number, index]),
        percent_of_before=_number(100 * np.exp(-judged.since[number, index])),
        verdict=verdict,
        since_before=since_before and not judged.slow[number, index],
        no_majority=bool(judged.no_majority[number, index]),
    )


def _verdict(
    findings: Sequence[UnitFinding], reasons: list[str], rows: Sequence[UnitTime], wrong_bits: bool
) -> FleetVerdict:
    """Return the worst verdict of the units.

    Return `wrong` if a unit failed or bits are wrong, and `unknown` if no unit was measured.
    """
    failed = any(row.status in {Status.WRONG, Status.ERROR} for row in rows)
    if wrong_bits or failed:
        return FleetVerdict.WRONG
    of_units = {finding.verdict for finding in findings}
    if FleetVerdict.SLOW in of_units:
        return FleetVerdict.SLOW
    if reasons or not findings or of_units == {FleetVerdict.UNKNOWN}:
        if not reasons:
            reasons.append(
                "nothing to compare the device with: no other device was measured, no earlier run"
            )
        return FleetVerdict.UNKNOWN
    if any(finding.no_majority for finding in findings):
        reasons.append(NO_MAJORITY)
    return FleetVerdict.AMBIGUOUS if FleetVerdict.AMBIGUOUS in of_units else FleetVerdict.FINE


def _differing_bits(of_device: Mapping[str, Sequence[Report]]) -> dict[str, list[str]]:
    """Return reasons for each device whose bits differ from the bits of most devices of its kind.

    The data of these devices was silently corrupted. If no bits have a majority, nothing shows
    which device is right, so all devices are named.
    """
    numbers_by_device: dict[tuple[str, str, int], dict[str, set[int]]] = defaultdict(
        lambda: defaultdict(set)
    )
    for name, reports in of_device.items():
        for report in reports:
            for unit, by_set in report.bits.items():
                for factor, numbers in by_set.items():
                    numbers_by_device[report.member.device.name, unit, factor][name] |= numbers
    reasons: dict[str, list[str]] = defaultdict(list)
    for (_kind, unit, _factor), by_device in numbers_by_device.items():
        counts = Counter(number for numbers in by_device.values() for number in numbers)
        (usual, count), *_ = counts.most_common(1)
        if len(counts) == 1:
            continue
        # A device with two values counts for both values, so both may have the same count.
        majority = 2 * count > len(by_device) and [*counts.values()].count(count) == 1
        for name, numbers in by_device.items():
            if not majority or numbers != {usual}:
                others = (
                    "most devices" if majority else "other devices, and no bits have a majority"
                )
                reasons[name].append(
                    f"{unit}: the bits of the results differ from those of {others}"
                )
    return reasons


def _differences(
    configurations: Mapping[str, Mapping[str, Any]], labels: Mapping[str, str]
) -> dict[str, dict[str, list[str]]]:
    by_fact: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for name, facts in configurations.items():
        for fact, value in facts.items():
            if fact not in COUNTERS:
                by_fact[fact][str(value)].append(labels[name])
    return {
        fact.replace("_", " "): dict(values) for fact, values in by_fact.items() if len(values) > 1
    }


def _speed(finding: UnitFinding | None) -> float:
    """Return the lower of two speeds in percent: relative to other devices, and to earlier runs.

    Return 100 if neither speed is known.
    """
    if finding is None:
        return 100.0
    percentages = (finding.percent_of_others, finding.percent_of_before)
    return min((percent for percent in percentages if percent is not None), default=100.0)


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _usual(values: Iterable[Any]) -> Any:
    counts = Counter(value for value in values if value is not None)
    return counts.most_common(1)[0][0] if counts else None
