"""`gpubench fleet`: all devices of a cluster are measured, kept in the store and judged."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from gpubench.commands.fleet.judge import Limits
from gpubench.commands.fleet.units import ALONE, TOGETHER, Asked, Report, measure_units, unit_of
from gpubench.commands.fleet.verdicts import Fleet, assess, identity
from gpubench.engine.cluster import Member, cancel, connected, members, present
from gpubench.engine.session import default_place
from gpubench.errors import UsageError
from gpubench.results import store
from gpubench.results.output import Output
from gpubench.results.row import Row, encode, read
from gpubench.view.tables import console, counted

if TYPE_CHECKING:
    from distributed import Client

NAME = "fleet"
"""What the runs are kept under in the store."""

COLUMNS = ("status", "median_us", "round_medians_us", "device", "device_uuid", "host", "slot")
"""What is read of earlier runs."""

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
        path = output or default_place(NAME, "units.csv")
        reports: list[Report] = []
        with Output(path, overwrite=force).create(encode([])) as file:

            def keep(report: Report, left: int) -> None:
                reports.append(report)
                file.write(encode(report.rows).partition(b"\n")[2])
                file.flush()
                said = report.error or f"{len(report.rows)} times"
                err.print(f"{report.member.label}: {said}; {left} to go", markup=False)

            try:
                measure_all(client, found, device, rounds, keep)
            except KeyboardInterrupt:
                return None, path
    fleet = assess(reports, earlier_rows(reports), limits)
    rows = [row for report in reports for row in report.rows]
    kind = attrgetter("device")
    for _, of_kind in groupby(sorted(rows, key=kind), key=kind):
        store.save(merged(of_kind), NAME)
    return fleet, path


def measure_all(
    client: Client,
    found: Mapping[str, Member],
    device: str,
    rounds: int,
    keep: Callable[[Report, int], None],
) -> None:
    """Measure on all workers; `keep` gets each report and the number of those to come.

    The hosts go on independently. On each the devices take turns, a round each, while the others do
    nothing; then all measure at the same time. A worker that is lost costs its own reports.
    """
    inbox: SimpleQueue[Any] = SimpleQueue()
    running: dict[Any, str] = {}
    steps = {
        host: deque(_steps(sorted(at for at in found if found[at].hostname == host), rounds))
        for host in {member.hostname for member in found.values()}
    }
    left = sum(len(step) for of_host in steps.values() for step in of_host)
    waiting = defaultdict(int, dict.fromkeys(steps, 0))

    lost: set[str] = set()

    def advance(host: str) -> None:
        nonlocal left
        while steps[host] and not waiting[host]:
            for address, phase, count, more in steps[host].popleft():
                if address in lost or client.status != "running":
                    left -= 1
                    continue
                asked = Asked(device, phase, count, SEED, more)
                future = client.submit(measure_units, asked, workers=[address], pure=False)
                running[future] = address
                waiting[host] += 1
                future.add_done_callback(inbox.put)

    def finish(future: Any, report: Report) -> None:
        nonlocal left
        host = found[running.pop(future)].hostname
        waiting[host] -= 1
        left -= 1
        keep(report, left)
        advance(host)

    try:
        for host in steps:
            advance(host)
        while running:
            try:
                future = inbox.get(timeout=1)
            except Empty:
                there = present(client)
                for future, address in list(running.items()):
                    if address not in there:
                        lost.add(address)
                        cancel(client, [future])
                        finish(future, _lost(found[address], "its worker is gone"))
                continue
            if future in running:
                finish(future, _report(future, found[running[future]]))
    finally:
        cancel(client, running)


def earlier_rows(reports: Iterable[Report]) -> list[Row]:
    """What the devices took in earlier runs that the store has."""
    devices = {report.member.device.name for report in reports if report.rows}
    return [
        row
        for name in devices
        for path in store.saved(NAME, name)[-HISTORY:]
        for row in read(path, COLUMNS)
    ]


def merged(rows: Iterable[Row]) -> list[Row]:
    """A row for each device, unit and phase, with all its round medians."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault((identity(row), unit_of(row), row.state), []).append(row)
    return [
        replace(
            of[0],
            rounds=len(of),
            round_medians_us=";".join(one.round_medians_us or "" for one in of),
        )
        for of in groups.values()
        if all(one.round_medians_us for one in of)
    ]


def _steps(addresses: Sequence[str], rounds: int) -> list[list[tuple[str, str, int, bool]]]:
    """What the devices of a host do, one step after the other.

    (worker, phase, rounds, whether it has another turn alone)
    """
    turns = range(1, rounds + 1)
    alone = [[(address, ALONE, 1, turn < rounds)] for turn in turns for address in addresses]
    if len(addresses) == 1:
        return alone
    return [*alone, [(address, TOGETHER, rounds, False) for address in addresses]]


def _report(future: Any, member: Member) -> Report:
    try:
        report: Report = future.result()
    except Exception as error:  # of Dask, or what nobody foresaw there
        return _lost(member, str(error).partition("\n")[0] or type(error).__name__)
    return report._replace(member=member) if report.error else report


def _lost(member: Member, why: str) -> Report:
    return Report(member, [], {}, {}, error=why)
