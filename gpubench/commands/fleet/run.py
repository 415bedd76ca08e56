"""`gpubench fleet`: measure all devices of a cluster, keep their times, and judge them."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from time import monotonic
from typing import TYPE_CHECKING, Any

from rich.text import Text

from gpubench.commands.fleet import times as times_of
from gpubench.commands.fleet.judge import Limits
from gpubench.commands.fleet.units import ALONE, TOGETHER, Asked, Report, measure_units
from gpubench.commands.fleet.verdicts import Fleet, assess
from gpubench.engine.cluster import Member, cancel, connected, members, present
from gpubench.errors import UsageError
from gpubench.model import Measurement
from gpubench.results.output import Output
from gpubench.results.result_file import default_path
from gpubench.text import counted
from gpubench.view.progress import PLAIN_EVERY_S
from gpubench.view.tables import console

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
    err = console(stderr=True)
    with connected(on, device) as client:
        workers = members(client, device)
        if len({member.tree_hash for member in workers.values()}) > 1:
            raise UsageError("--on: the workers have different versions of gpubench")
        hosts = len({member.hostname for member in workers.values()})
        what = (counted(len(workers), "device"), counted(hosts, "host"), counted(rounds, "round"))
        err.print("{} on {}, {}".format(*what), highlight=False)
        if len(workers) == 1:
            err.print(
                "one device: there is nothing to compare it with but its own earlier runs",
                highlight=False,
                soft_wrap=True,
            )
        path = output or default_path(times_of.NAME, "units.csv")
        reports: list[Report] = []
        printed_s = -math.inf
        with (
            Output(path, overwrite=force).create(times_of.encode([])) as file,
            err.status("") as status,
        ):

            def keep(report: Report, phase: str, done: int, total: int) -> None:
                reports.append(report)
                file.write(times_of.encode(report.times).partition(b"\n")[2])
                file.flush()
                nonlocal printed_s
                turn = f"turn {done} of {total}: {phase}, on {report.member.label}"
                status.update(Text(turn))
                failure = f": {report.error}" if report.error else ""
                is_due = not err.is_terminal and monotonic() - printed_s > PLAIN_EVERY_S
                if failure or is_due:
                    err.print(f"{turn}{failure}", markup=False, soft_wrap=True)
                    printed_s = monotonic()

            try:
                measure_all(client, workers, device, rounds, keep)
            except KeyboardInterrupt:
                return None, path
    names = dict.fromkeys(time.device for report in reports for time in report.times)
    before: list[times_of.UnitTime] = []
    for name in names:
        earlier, unreadable = times_of.earlier(name, HISTORY)
        before += earlier
        for message in unreadable:
            err.print(f"passes over {message}", markup=False, soft_wrap=True)
    fleet = assess(reports, before, limits)
    times_of.keep(time for report in reports for time in report.times)
    return fleet, path


def measure_all(  # noqa: PLR0915 # one loop, and the functions that share its state
    client: Client,
    workers: Mapping[str, Member],
    device: str,
    rounds: int,
    keep: Callable[[Report, str, int, int], None],
) -> None:
    """Measure on all workers. `keep` receives each report, its phase, its number and the total.

    Hosts are independent of each other. The devices of a host take turns, a round each, while the
    other devices do nothing. Then all measure at the same time. Units whose rounds scatter are then
    measured in more rounds. If a worker is lost, only its own reports are missing.
    """
    inbox: SimpleQueue[Any] = SimpleQueue()
    running: dict[Any, tuple[str, str]] = {}
    hosts = {member.hostname for member in workers.values()}
    addresses = {
        host: sorted(at for at in workers if workers[at].hostname == host) for host in hosts
    }
    steps = {host: deque(_steps(addresses[host], rounds)) for host in hosts}
    times: dict[str, list[times_of.UnitTime]] = {host: [] for host in hosts}
    extended: set[str] = set()
    total, done = sum(len(step) for of_host in steps.values() for step in of_host), 0
    verified: dict[str, Sequence[Measurement]] = {}
    waiting = defaultdict(int, dict.fromkeys(steps, 0))

    lost: set[str] = set()

    def advance(host: str) -> None:
        nonlocal done, total
        if not steps[host] and not waiting[host] and host not in extended:
            extended.add(host)
            steps[host].extend(more_steps(addresses[host], times[host], rounds))
            total += sum(map(len, steps[host]))
        while steps[host] and not waiting[host]:
            for address, phase, count, units in steps[host].popleft():
                if address in lost or client.status != "running":
                    done += 1
                    continue
                asked = Asked(device, phase, count, SEED, verified.get(address, ()), units)
                future = client.submit(measure_units, asked, workers=[address], pure=False)
                running[future] = address, phase
                waiting[host] += 1
                future.add_done_callback(inbox.put)

    def finish(future: Any, report: Report) -> None:
        nonlocal done
        address, phase = running.pop(future)
        host = workers[address].hostname
        waiting[host] -= 1
        done += 1
        verified[address] = report.verified
        times[host].extend(report.times)
        keep(report, phase, done, total)
        advance(host)

    try:
        for host in steps:
            advance(host)
        while running:
            try:
                future = inbox.get(timeout=1)
            except Empty:
                there = present(client)
                for future, (address, _phase) in list(running.items()):
                    if address not in there:
                        lost.add(address)
                        cancel(client, [future])
                        finish(future, _lost(workers[address], "its worker is gone"))
                continue
            if future in running:
                finish(future, _report(future, workers[running[future][0]]))
    finally:
        cancel(client, running)


Turn = tuple[str, str, int, frozenset[str]]
"""A worker, the phase, the number of rounds, and the units; no units: all."""


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
