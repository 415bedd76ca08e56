"""`gpubench fleet`: measure all devices of a cluster, keep their times, and judge them."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from gpubench.commands.fleet import times as times_of
from gpubench.commands.fleet.judge import Limits
from gpubench.commands.fleet.units import ALONE, TOGETHER, Asked, Report, measure_units
from gpubench.commands.fleet.verdicts import Fleet, assess
from gpubench.engine.cluster import Member, cancel, connected, members, present
from gpubench.errors import UsageError
from gpubench.grouping import grouped
from gpubench.model import Measurement
from gpubench.results.output import Output
from gpubench.results.result_file import default_path
from gpubench.text import counted
from gpubench.view.progress import Steps
from gpubench.view.tables import say

if TYPE_CHECKING:
    from distributed import Client

QUIET = 0.01
"""Standard error of a logarithm. A unit with a larger error is measured in further rounds."""

MAX_MORE = 9
"""Maximum number of further rounds of a noisy unit."""

HISTORY = 10
"""Maximum number of earlier runs that a device is compared with."""

SEED = 2006
"""Seed of the operands. It is the same on every device, so that the bits can be compared."""


def run_fleet(
    on: str, device: str, *, rounds: int, limits: Limits, output: Path | None, force: bool
) -> tuple[Fleet | None, Path]:
    """Measure, keep and judge. Return the verdicts, or None after Ctrl-C, and the path of the CSV.

    Raises UsageError if there is no cluster, or the file cannot be written.
    """
    with connected(on, device) as client:
        workers = members(client, device)
        if len({member.tree_hash for member in workers.values()}) > 1:
            raise UsageError("--on: the workers have different versions of gpubench")
        hosts = len({member.hostname for member in workers.values()})
        what = (counted(len(workers), "device"), counted(hosts, "host"), counted(rounds, "round"))
        say("{} on {}, {}".format(*what), err=True)
        if len(workers) == 1:
            say("one device: it is compared with nothing but its own earlier runs", err=True)
        path = output or default_path(times_of.NAME, "units.csv")
        reports: list[Report] = []
        with Output(path, overwrite=force).create(times_of.encode([])) as file, Steps() as steps:

            def keep(report: Report, phase: str, done: int, total: int) -> None:
                reports.append(report)
                file.write(times_of.encode(report.times).partition(b"\n")[2])
                file.flush()
                steps.show(f"turn {done} of {total}: {phase}, on {report.member.label}")
                if report.error:
                    say(f"{phase}, on {report.member.label}: {report.error}", err=True)

            try:
                FleetRun(client, workers, device, rounds, keep).measure()
            except KeyboardInterrupt:
                return None, path
    names = dict.fromkeys(time.device for report in reports for time in report.times)
    before: list[times_of.UnitTime] = []
    for name in names:
        earlier, unreadable = times_of.earlier(name, HISTORY)
        before += earlier
        for message in unreadable:
            say(f"passes over {message}", err=True)
    fleet = assess(reports, before, limits)
    times_of.keep(time for report in reports for time in report.times)
    return fleet, path


Turn = tuple[str, str, int, frozenset[str]]
"""A worker, the phase, the number of rounds, and the units; no units: all."""

Keep = Callable[[Report, str, int, int], None]
"""Receives a report, its phase, its number and the total."""


@dataclass
class _Host:
    """The devices of a host, which take turns, and what they have measured."""

    addresses: list[str]
    steps: deque[list[Turn]]
    times: list[times_of.UnitTime] = field(default_factory=list)
    running: int = 0
    """Number of turns that have not ended."""

    is_extended: bool = False
    """Whether steps for the noisy units were added."""


class FleetRun:
    """Measures on all workers.

    Hosts are independent of each other. The devices of a host take turns, a round each, while the
    other devices do nothing. Then all measure at the same time. Units whose rounds scatter are then
    measured in more rounds. If a worker is lost, only its own reports are missing.
    """

    def __init__(
        self,
        client: Client,
        workers: Mapping[str, Member],
        device: str,
        rounds: int,
        keep: Keep,
    ) -> None:
        self._client, self._workers, self._device = client, workers, device
        self._rounds, self._keep = rounds, keep
        self._ended: SimpleQueue[Any] = SimpleQueue()
        self._running: dict[Any, tuple[str, str]] = {}
        """Worker and phase of each turn that has not ended, by its future."""

        self._lost: set[str] = set()
        self._verified: dict[str, Sequence[Measurement]] = {}
        addresses = grouped(sorted(workers), lambda address: workers[address].hostname)
        self._hosts = {
            name: _Host(of_host, deque(_steps(of_host, rounds)))
            for name, of_host in addresses.items()
        }
        self._done = 0
        self._total = sum(len(step) for host in self._hosts.values() for step in host.steps)

    def measure(self) -> None:
        """Run all turns. On an exception, such as Ctrl-C, cancel those that run."""
        try:
            for host in self._hosts.values():
                self._advance(host)
            while self._running:
                try:
                    future = self._ended.get(timeout=1)
                except Empty:
                    self._give_up_lost_workers()
                    continue
                if future in self._running:
                    address, _ = self._running[future]
                    self._finish(future, _report(future, self._workers[address]))
        finally:
            cancel(self._client, self._running)

    def _advance(self, host: _Host) -> None:
        """Start the next step of a host, unless a turn of its last step still runs."""
        if not (host.steps or host.running or host.is_extended):
            host.is_extended = True
            host.steps.extend(more_steps(host.addresses, host.times, self._rounds))
            self._total += sum(map(len, host.steps))
        while host.steps and not host.running:
            for address, phase, count, units in host.steps.popleft():
                if address in self._lost or self._client.status != "running":
                    self._done += 1
                    continue
                verified = self._verified.get(address, ())
                asked = Asked(self._device, phase, count, SEED, verified, units)
                future = self._client.submit(measure_units, asked, workers=[address], pure=False)
                self._running[future] = address, phase
                host.running += 1
                future.add_done_callback(self._ended.put)

    def _finish(self, future: Any, report: Report) -> None:
        address, phase = self._running.pop(future)
        host = self._hosts[self._workers[address].hostname]
        host.running -= 1
        host.times.extend(report.times)
        self._verified[address] = report.verified
        self._done += 1
        self._keep(report, phase, self._done, self._total)
        self._advance(host)

    def _give_up_lost_workers(self) -> None:
        there = present(self._client)
        for future, (address, _phase) in list(self._running.items()):
            if address not in there:
                self._lost.add(address)
                cancel(self._client, [future])
                self._finish(future, _lost(self._workers[address], "its worker is gone"))


def _steps(addresses: Sequence[str], rounds: int) -> list[list[Turn]]:
    """Return the steps of a host: which workers measure at the same time."""
    every: frozenset[str] = frozenset()
    alone: list[list[Turn]] = [
        [(address, ALONE, 1, every)] for _ in range(rounds) for address in addresses
    ]
    if len(addresses) == 1:
        return alone
    return [*alone, [(address, TOGETHER, rounds, every) for address in addresses]]


def more_steps(
    addresses: Sequence[str], times: Sequence[times_of.UnitTime], rounds: int
) -> list[list[Turn]]:
    """Return further steps for the units whose rounds scatter too much, by phase.

    The number of rounds is what a typical device needs for a standard error of `QUIET`, up to
    `MAX_MORE`.
    """
    steps: list[list[Turn]] = []
    for phase in (ALONE, TOGETHER):
        errors: dict[str, list[float]] = defaultdict(list)
        logs: dict[tuple[str, str], list[float]] = defaultdict(list)
        for time in times:
            if time.phase == phase and time.time_us:
                logs[time.unit, time.identity].append(math.log(time.time_us))
        for (unit, _), values in logs.items():
            if len(values) > 1:
                errors[unit].append(statistics.stdev(values) / math.sqrt(len(values)))
        noisy = {unit: statistics.median(of_unit) for unit, of_unit in errors.items()}
        noisy = {unit: error for unit, error in noisy.items() if error > QUIET}
        if noisy:
            units = frozenset(noisy)
            more = min(MAX_MORE, math.ceil(rounds * ((max(noisy.values()) / QUIET) ** 2 - 1)))
            if phase == ALONE:
                steps += [
                    [(address, ALONE, 1, units)] for _ in range(more) for address in addresses
                ]
            else:
                steps.append([(address, TOGETHER, more, units) for address in addresses])
    return steps


def _report(future: Any, member: Member) -> Report:
    try:
        report: Report = future.result()
    except Exception as error:  # of Dask, or an unexpected error there
        return _lost(member, str(error).partition("\n")[0] or type(error).__name__)
    return report._replace(member=member) if report.error else report


def _lost(member: Member, why: str) -> Report:
    return Report(member, [], {}, {}, error=why)
