"""`gpubench fleet`: measure all devices of a cluster, keep their times, and judge them."""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from operator import attrgetter
from pathlib import Path
from queue import Empty, SimpleQueue
from time import perf_counter
from typing import TYPE_CHECKING, Any

from gpubench.backends import AUTO
from gpubench.commands.fleet import times as times_of
from gpubench.commands.fleet.units import (
    ALONE,
    EDGE_ROUNDS,
    PRODUCTS,
    TOGETHER,
    UNIT,
    Asked,
    Report,
    measure_units,
    products,
)
from gpubench.commands.fleet.verdicts import Fleet, assess
from gpubench.engine.cluster import (
    CONNECTION_ENDED,
    SILENT_S,
    Heartbeats,
    Member,
    cancel,
    connected,
    devices_of,
    members,
    present,
    result_of,
)
from gpubench.errors import PeerLostError, UsageError
from gpubench.files import Output
from gpubench.grouping import grouped
from gpubench.model import Measurement
from gpubench.options import LOCAL, require_cluster
from gpubench.plan.schedule import minutes
from gpubench.results.result_file import default_path
from gpubench.text import counted
from gpubench.view.progress import Steps
from gpubench.view.tables import console, say, table

if TYPE_CHECKING:
    from distributed import Client

QUIET = 0.01  # largest standard error of a time's logarithm. Noisier units get further rounds
MAX_MORE = 9  # maximum number of further rounds of a noisy unit
HISTORY = 10  # maximum number of earlier runs that a device is compared with
SEED = 2006  # seed of the operands: the same on every device, so that bits can be compared


def run_fleet(
    on: str, device: str, *, rounds: int, threshold: float, output: Path | None, force: bool
) -> tuple[Fleet | None, Path | None]:
    """Measure and judge all devices. Return the verdicts (None after Ctrl-C), and the CSV's path.

    If no unit was measured, no file is written, and the path is None.

    Raises UsageError if there is no cluster, or if the file cannot be written.
    """
    with connected(on, device) as client:
        try:
            workers, unanswered = members(client, device)
        except PeerLostError as error:  # its exit code would mean that a device is slow
            raise UsageError(str(error)) from error
        if len({member.tree_hash for member in workers.values()}) > 1:
            raise UsageError("--on: the workers have different versions of gpubench")
        sizes = Counter(member.hostname for member in workers.values()).values()
        turns = sum(_turns(rounds, size) for size in sizes)
        what = (counted(len(workers), "device"), counted(len(sizes), "host"))
        say(f"{' on '.join(what)}, {counted(rounds, 'round')}", err=True)
        reports = [_unanswered(member, why) for member, why in unanswered.values()]
        if len(workers) == 1:
            say("there is one device, which is compared only with its own earlier runs", err=True)
        file = times_of.TimesFile(
            output or default_path(times_of.NAME, "units.csv"), overwrite=force
        )
        printed: set[tuple[str, str]] = set()  # devices with errors that were printed
        with closing(file), Steps() as steps:

            def keep(report: Report, phase: str) -> None:
                reports.append(report)
                file.write(report.times)
                turn = len(reports) - len(unanswered)
                of_all = f" of {turns}" if turn <= turns else ", because times scatter"
                steps.show(f"turn {turn}{of_all}: {phase}, on {report.member.label}")
                failure = report.identity, report.error
                if report.error and failure not in printed:
                    printed.add(failure)
                    say(f"{phase}, on {report.member.label}: {report.error}", err=True)

            try:
                FleetRun(client, workers, device, rounds, keep).measure()
            except KeyboardInterrupt:
                return None, file.path
    times = [time for report in reports for time in report.times]
    earlier = [*times_of.earlier(times, HISTORY)]
    try:
        times_of.keep(times)
    except UsageError as error:  # the CSV has the times
        say(f"later runs cannot be compared with this run: {error}", err=True)
    return assess(reports, earlier, threshold), file.path


def foresee(on: str, device: str, *, rounds: int, output: Path | None, force: bool = False) -> None:
    """`gpubench fleet --dry-run`: print the devices, the units and the expected time.

    No cluster is contacted. Raises the exceptions of `devices_of`, and UsageError if the output
    file must not be written.
    """
    if output:
        Output(output, overwrite=force)
    where = f"the workers of {on}: {counted(rounds, 'round')} on each"
    products_of, expected = list(PRODUCTS.values()), ""
    if on == LOCAL:
        devices = devices_of(device)
        turns = _turns(rounds, len(devices))
        products_of = [PRODUCTS[devices[0].backend]]
        of_round = products(devices[0], 1, Asked(device, ALONE, 1, SEED)).forecast().expected_s
        serial = rounds * len(devices)
        if len(devices) > 1:  # all devices measure at the same time
            serial += rounds + 2 * EDGE_ROUNDS
        names = dict.fromkeys(each.name for each in devices)
        where = f"{counted(len(devices), 'device')} ({', '.join(names)}), {counted(turns, 'turn')}"
        expected = f"about {minutes(serial * of_round)} after the workers have started\n"
    else:
        require_cluster(on)
        products_of = [product for name, product in PRODUCTS.items() if device in {AUTO, name}]
    listing = table("unit", "M = N = K", "by", left={"unit", "by"})
    for each in products_of:
        for dtype in each.dtypes:
            listing.add_row(UNIT.format(dtype), str(each.extent), each.variant)
    say(f"{where}; nothing is run")
    console().print(listing)
    say("\nalso measured: the parts of each device, such as a copy in its memory")
    say(expected + f"would write: {output or default_path(times_of.NAME, 'units.csv')}")


Turn = tuple[str, str, int, frozenset[str]]
"""The address of a worker, the phase, the number of rounds, and the units. An empty set of units
stands for all units."""

Keep = Callable[[Report, str], None]  # receives a report and its phase


LOOK_EVERY_S = 1.0  # time between two searches for workers that have left the cluster


class FleetRun:
    """Measures the units on all workers.

    Hosts are independent of each other. The devices of a host take turns: each device measures a
    round while the other devices do nothing. Then all devices measure at the same time. Units whose
    rounds scatter are then measured in more rounds. If a worker is lost, only its own reports are
    missing.
    """

    def __init__(
        self, client: Client, workers: Mapping[str, Member], device: str, rounds: int, keep: Keep
    ) -> None:
        self._client, self._workers, self._device, self._keep = client, workers, device, keep
        self._ended: SimpleQueue[Any] = SimpleQueue()
        self._running: dict[Any, tuple[str, str]] = {}
        """Maps the future of each running turn to the worker and the phase of the turn."""

        self._lost: set[str] = set()
        self._heartbeats = Heartbeats()
        self._why_ended = ""  # why the scheduler takes no more turns
        self._verified: dict[str, Sequence[Measurement]] = {}
        self._times: dict[str, list[times_of.UnitTime]] = defaultdict(list)
        """Maps each host to the times that the workers of the host have reported."""

        hosts = grouped(sorted(workers), lambda address: workers[address].hostname)
        self._steps = {
            host: host_steps(addresses, rounds, self._times[host])
            for host, addresses in hosts.items()
        }

    def measure(self) -> None:
        """Run all turns. On an exception, such as Ctrl-C, cancel the turns that run."""
        look_s = perf_counter() + LOOK_EVERY_S
        try:
            for host in self._steps:
                self._advance(host)
            while self._running:
                try:
                    future = self._ended.get(timeout=max(0.0, look_s - perf_counter()))
                except Empty:  # also between the turns of other workers
                    self._give_up_lost_workers()
                    look_s = perf_counter() + LOOK_EVERY_S
                    continue
                if future in self._running:
                    address, _ = self._running[future]
                    self._finish(future, _report(future, self._workers[address]))
        finally:
            cancel(self._client, self._running)

    def _advance(self, host: str) -> None:
        """Start the next step of a host, unless a turn of its last step still runs."""
        busy = {self._workers[address].hostname for address, _ in self._running.values()}
        while host not in busy and (step := next(self._steps[host], None)):
            for address, phase, count, units in step:
                if address in self._lost:
                    continue
                if self._client.status != "running":
                    self._why_ended = self._why_ended or CONNECTION_ENDED
                if self._why_ended:
                    self._lost.add(address)
                    self._keep(_lost(self._workers[address], self._why_ended), phase)
                    continue
                verified = self._verified.get(address, ())
                asked = Asked(self._device, phase, count, SEED, verified, units)
                future = self._client.submit(measure_units, asked, workers=[address], pure=False)
                self._running[future] = address, phase
                busy.add(host)
                future.add_done_callback(self._ended.put)

    def _finish(self, future: Any, report: Report) -> None:
        address, phase = self._running.pop(future)
        host = self._workers[address].hostname
        self._times[host].extend(report.times)
        self._verified[address] = report.verified
        self._keep(report, phase)
        self._advance(host)

    def _give_up_lost_workers(self) -> None:
        try:
            there = present(self._client)
        except PeerLostError as error:
            there, self._why_ended = {}, str(error)
        silent = self._heartbeats.silent(there)
        for future, (address, _phase) in list(self._running.items()):
            if address in there.keys() - silent:
                continue
            why = self._why_ended or "the worker left the cluster"
            if address in silent:
                why = f"the worker has been silent for {SILENT_S:g} s"
            self._lost.add(address)
            cancel(self._client, [future])
            self._finish(future, _lost(self._workers[address], why))


def host_steps(
    addresses: Sequence[str], rounds: int, times: Sequence[times_of.UnitTime]
) -> Iterator[list[Turn]]:
    """Yield the steps of a host. A step is a list of turns that run at the same time.

    The caller adds the times of the usual steps to `times` before it requests a further step. Units
    whose rounds scatter too much have further steps: at most `MAX_MORE` further rounds, and no more
    than a typical device needs for a standard error of `QUIET`.
    """
    yield from _phase_steps(addresses, ALONE, rounds)
    if len(addresses) > 1:
        yield from _phase_steps(addresses, TOGETHER, rounds)
    noisy = _noisy_units(times)
    for phase, errors in noisy.items():
        more = min(MAX_MORE, math.ceil(rounds * ((max(errors.values()) / QUIET) ** 2 - 1)))
        yield from _phase_steps(addresses, phase, more, frozenset(errors))


def _turns(rounds: int, devices: int) -> int:
    """Return the number of turns on a host.

    A device has one turn for each round that it measures alone, and one turn together with the
    other devices.
    """
    return rounds * devices + devices * (devices > 1)


def _phase_steps(
    addresses: Sequence[str], phase: str, rounds: int, units: frozenset[str] = frozenset()
) -> list[list[Turn]]:
    if phase == ALONE:
        return [[(address, phase, 1, units)] for _ in range(rounds) for address in addresses]
    return [[(address, phase, rounds, units) for address in addresses]]


def _noisy_units(times: Iterable[times_of.UnitTime]) -> dict[str, dict[str, float]]:
    """Map each phase to its noisy units, and each noisy unit to its typical standard error.

    A unit is noisy if this error exceeds `QUIET`.
    """
    timed = (time for time in times if time.time_us)
    errors: dict[tuple[str, str], list[float]] = defaultdict(list)
    for (phase, unit, _), rounds in grouped(timed, attrgetter("phase", "unit", "identity")).items():
        logs = [math.log(time.time_us or 1.0) for time in rounds]
        if len(logs) > 1:
            errors[phase, unit].append(statistics.stdev(logs) / math.sqrt(len(logs)))
    noisy: dict[str, dict[str, float]] = {}
    for (phase, unit), of_devices in errors.items():
        if (error := statistics.median(of_devices)) > QUIET:
            noisy.setdefault(phase, {})[unit] = error
    return noisy


def _report(future: Any, member: Member) -> Report:
    try:
        report: Report | None = result_of(future)
    except PeerLostError as error:
        return _lost(member, str(error))
    if not report:
        return _lost(member, "the worker left the cluster before it sent its report")
    return report._replace(member=member) if report.error else report


def _unanswered(member: Member, why: str) -> Report:
    say(f"{member.label}: {why}", err=True)
    return _lost(member, why)


def _lost(member: Member, why: str) -> Report:
    return Report(member, [], {}, {}, error=why)
