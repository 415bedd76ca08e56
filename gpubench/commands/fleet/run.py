"""`gpubench fleet`: all devices of a cluster are measured, kept in the store and judged."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from gpubench.commands.fleet import times
from gpubench.commands.fleet.judge import Limits
from gpubench.commands.fleet.units import ALONE, TOGETHER, Asked, Report, measure_units
from gpubench.commands.fleet.verdicts import Fleet, assess
from gpubench.engine.cluster import Member, cancel, connected, members, present
from gpubench.errors import UsageError
from gpubench.model import Measurement
from gpubench.results.output import Output
from gpubench.results.result_file import default_path
from gpubench.view.tables import console, counted

if TYPE_CHECKING:
    from distributed import Client

HISTORY = 10
"""Earlier runs that a device is compared with."""

SEED = 2006
"""Of the operands: the same on every device, so that the bits can be compared."""


def run_fleet(
    on: str, device: str, *, rounds: int, limits: Limits, output: Path | None, force: bool
) -> tuple[Fleet | None, Path]:
    """Measure, keep and judge; None after Ctrl-C. The path of the CSV, which has every row.

    Raises UsageError where there is no cluster, or the file cannot be written.
    """
    err = console(stderr=True)
    with connected(on, device) as client:
        found = members(client, device)
        if len({member.tree_hash for member in found.values()}) > 1:
            raise UsageError("--on: the workers have different versions of gpubench")
        hosts = len({member.hostname for member in found.values()})
        what = (counted(len(found), "device"), counted(hosts, "host"), counted(rounds, "round"))
        err.print("{} on {}, {}".format(*what), highlight=False)
        if len(found) == 1:
            err.print(
                "one device: there is nothing to compare it with but its own earlier runs",
                highlight=False,
                soft_wrap=True,
            )
        path = output or default_path(times.NAME, "units.csv")
        reports: list[Report] = []
        with Output(path, overwrite=force).create(times.encode([])) as file:

            def keep(report: Report, phase: str, done: int, total: int) -> None:
                reports.append(report)
                file.write(times.encode(report.times).partition(b"\n")[2])
                file.flush()
                turn = f"turn {done} of {total}: all units, {phase}, on {report.member.label}"
                failure = f": {report.error}" if report.error else ""
                err.print(f"{turn}{failure}", markup=False, soft_wrap=True)

            try:
                measure_all(client, found, device, rounds, keep)
            except KeyboardInterrupt:
                return None, path
    devices = dict.fromkeys(time.device for report in reports for time in report.times)
    before = [time for device in devices for time in times.earlier(device, HISTORY)]
    fleet = assess(reports, before, limits)
    times.keep(time for report in reports for time in report.times)
    return fleet, path


def measure_all(
    client: Client,
    found: Mapping[str, Member],
    device: str,
    rounds: int,
    keep: Callable[[Report, str, int, int], None],
) -> None:
    """Measure on all workers; `keep` gets each report, phase, number and the total.

    The hosts go on independently. On each the devices take turns, a round each, while the others do
    nothing; then all measure at the same time. A worker that is lost costs its own reports.
    """
    inbox: SimpleQueue[Any] = SimpleQueue()
    running: dict[Any, tuple[str, str]] = {}
    steps = {
        host: deque(_steps(sorted(at for at in found if found[at].hostname == host), rounds))
        for host in {member.hostname for member in found.values()}
    }
    total, done = sum(len(step) for of_host in steps.values() for step in of_host), 0
    verified: dict[str, Sequence[Measurement]] = {}
    waiting = defaultdict(int, dict.fromkeys(steps, 0))

    lost: set[str] = set()

    def advance(host: str) -> None:
        nonlocal done
        while steps[host] and not waiting[host]:
            for address, phase, count in steps[host].popleft():
                if address in lost or client.status != "running":
                    done += 1
                    continue
                asked = Asked(device, phase, count, SEED, verified.get(address, ()))
                future = client.submit(measure_units, asked, workers=[address], pure=False)
                running[future] = address, phase
                waiting[host] += 1
                future.add_done_callback(inbox.put)

    def finish(future: Any, report: Report) -> None:
        nonlocal done
        address, phase = running.pop(future)
        host = found[address].hostname
        waiting[host] -= 1
        done += 1
        verified[address] = report.verified
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
                        finish(future, _lost(found[address], "its worker is gone"))
                continue
            if future in running:
                finish(future, _report(future, found[running[future][0]]))
    finally:
        cancel(client, running)


def _steps(addresses: Sequence[str], rounds: int) -> list[list[tuple[str, str, int]]]:
    """Return the steps of a host: which workers measure at the same time, phase, and rounds."""
    alone = [[(address, ALONE, 1)] for _ in range(rounds) for address in addresses]
    if len(addresses) == 1:
        return alone
    return [*alone, [(address, TOGETHER, rounds) for address in addresses]]


def _report(future: Any, member: Member) -> Report:
    try:
        report: Report = future.result()
    except Exception as error:  # of Dask, or what nobody foresaw there
        return _lost(member, str(error).partition("\n")[0] or type(error).__name__)
    return report._replace(member=member) if report.error else report


def _lost(member: Member, why: str) -> Report:
    return Report(member, [], {}, {}, error=why)
