"""A sweep shared among the workers of a Dask cluster, each with a device of one kind.

The unit of work is a share: some of the points with all their rounds, and the baselines that they
are compared with. Dask gives a share of a worker that died to another one. Measurements come back
as they are made, and are on disk before anything else is done with them.
"""

from __future__ import annotations

import math
import platform
import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue
from secrets import token_hex
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from gpubench.engine.cluster import Member, cancel, members, present, require_one_kind
from gpubench.engine.session import Outcome, Watcher, context, recorded, run
from gpubench.engine.worker import Worker
from gpubench.errors import DeviceUnavailableError, GpubenchError, UsageError
from gpubench.model import Device, Measurement, Point, PointKey, Status, Timing
from gpubench.plan.schedule import Visit, estimate, is_done
from gpubench.plan.sweep import Sweep, plan
from gpubench.results.provenance import package_version, source_hash
from gpubench.results.result_file import ResultFile, decode_line, encode_line
from gpubench.results.row import Row
from gpubench.results.rows import build_rows

if TYPE_CHECKING:
    from distributed import Client, Future

SHARE_S = 60.0
"""Expected time of a share, where a sweep is long enough to have several for each worker: what is
measured again if a worker dies, and what one waits for when the others have finished."""

COMMON = 3
"""Points that all workers measure, where a sweep has no baseline."""

ALONE_S = 120.0
"""Without any worker: then the sweep ends, and can be resumed."""

Place = tuple[str, str, str]
"""Host, slot and UUID of a device."""


class Share(NamedTuple):
    """What a worker is sent: it plans the sweep itself, and measures these of its points."""

    sweep: Sweep
    keys: frozenset[PointKey]
    kind: tuple[object, ...]
    """The `Member.kind` of the sweep."""

    topic: str
    """Of the Dask events that bring the measurements back."""


class Done(NamedTuple):
    """How a worker fared with a share."""

    address: str
    lines: list[bytes]
    """All measurements, as `encode_line` writes them."""

    device: Device | None = None
    """As its child opened it."""

    copy_gbytes_per_s: float | None = None
    error: GpubenchError | None = None


@dataclass(frozen=True, kw_only=True)
class _Heading:
    """What the progress display says of the workers together."""

    device: Device
    notices: tuple[str, ...]


# ---- in a worker


def measure_share(share: Share) -> Done:
    """Measure a share in this Dask worker; what it cannot do another worker may."""
    from distributed import get_worker

    at = get_worker()
    task = at.get_current_task()
    lines: list[bytes] = []

    class Reporter(Watcher):
        """Sends what was measured; ends the share when nobody wants it any more."""

        def measuring(self, _visit: Visit) -> None:
            known = at.state.tasks.get(task)
            if known is None or known.state != "executing":
                raise KeyboardInterrupt

        def measured(self, measurement: Measurement) -> None:
            named = measurement.slot or str(at.name)
            lines.append(encode_line(replace(measurement, slot=named)))
            at.log_event(share.topic, lines[-1])

    try:
        with Worker(share.sweep.device, share.sweep.timer, ahead=True) as worker:
            member = Member(str(at.name), platform.node(), worker.device, package_version()[0])
            if member.kind != share.kind:
                raise UsageError(
                    f"{member.label} joined with another kind of device, driver or gpubench"
                )
            outcome = run(
                share.sweep, worker, Reporter(), wanted=lambda point: point.key in share.keys
            )
    except GpubenchError as error:
        return Done(at.address, lines, error=error)
    reached = replace(worker.device, facts=worker.device.facts | outcome.ceilings)
    copy_gbytes_per_s = outcome.ceilings.get("measured_copy_gbytes_per_s")
    return Done(at.address, lines, reached, copy_gbytes_per_s)


# ---- in the process that was started


def run_shared(
    sweep: Sweep, client: Client, watcher: Watcher, file: ResultFile | None = None
) -> Outcome:
    """Measure a sweep on all workers of a cluster; as `session.run` otherwise.

    Raises UsageError too where the workers' devices are of several kinds, and
    DeviceUnavailableError where no worker is left.
    """
    started = perf_counter()
    found = members(client, sweep.device)
    first = require_one_kind(found)
    device = first.device
    planned = plan(sweep, device.backend, device.compute_capability)
    points = [point for point, reason in planned.items() if reason is None]
    hashes = {variant: source_hash(variant) for variant in {point.variant for point in planned}}
    known = _Known(sweep.timing, {point.key: point for point in planned}, file)
    if file:
        shared_context = {**context(sweep, device, hashes), "on": "several devices"}
        for measurement in file.open(shared_context, planned):
            known.put(measurement)
    complete = False
    try:
        for point, reason in planned.items():
            if reason is not None and not known.anywhere(point):
                known.keep(Measurement(point=point, status=Status.SKIPPED, reason=reason))
        unfinished = [point for point in points if not known.anywhere(point)]
        labels = ", ".join(member.label for member in found.values())
        watcher.planned(
            _Heading(device=device, notices=(f"shared among {_devices(found)}: {labels}",)),
            len(points),
            len(unfinished) * sweep.timing.rounds,
            estimate(unfinished[:: len(found)], device, sweep.timing),
        )
        if unfinished:
            to_do = _shares(sweep, unfinished, points, first, len(found))
            _measure(to_do, client, known, watcher, sweep.timing.rounds)
        complete = True
    except KeyboardInterrupt:
        pass
    finally:  # whatever ended it: what was measured is kept
        rows = [replace(row, **recorded(sweep)) for row in known.rows(device, hashes)]
        if file:
            file.finish(rows, complete=complete)
    wall_s = perf_counter() - started
    return Outcome(
        rows=rows,
        path=file.path if file else None,
        interrupted=not complete,
        wall_s=wall_s,
        spent_s={f"measuring on {_devices(found)}": wall_s},
    )


class _Known:
    """What came of each point at each place, and the file that has it."""

    def __init__(
        self, timing: Timing, points: Mapping[PointKey, Point], file: ResultFile | None
    ) -> None:
        self.at: defaultdict[Place, dict[Point, list[Measurement]]] = defaultdict(dict)
        self.devices: dict[Place, Device] = {}
        self.copies: dict[Place, float | None] = {}
        self._timing = timing
        self._points = points
        self._file = file

    def anywhere(self, point: Point) -> bool:
        """Whether all rounds of a point were measured at one place, or it failed there."""
        return any(is_done(at[point], self._timing) for at in self.at.values() if point in at)

    def read(self, line: bytes) -> Measurement | None:
        """Keep what a worker sent; None for what is known already.

        A share that was begun again repeats points: their rounds at one place are no more than was
        asked for.
        """
        measurement = decode_line(line, self._points)
        rounds = self.at[_place(measurement)].get(measurement.point, [])
        starts = {earlier.started_utc for earlier in rounds}
        if is_done(rounds, self._timing) or measurement.started_utc in starts:
            return None
        self.keep(measurement)
        return measurement

    def finished(self, done: Done) -> None:
        """Remember the device of a share, and the copy rate that was measured there."""
        if done.lines and done.device:
            place = _place(decode_line(done.lines[-1], self._points))
            self.devices[place] = done.device
            self.copies[place] = done.copy_gbytes_per_s

    def keep(self, measurement: Measurement) -> None:
        """Write it first: the CSV has nothing that the partial file lacks."""
        if self._file:
            self._file.add(measurement)
        self.put(measurement)

    def put(self, measurement: Measurement) -> None:
        """Remember what the file has."""
        self.at[_place(measurement)].setdefault(measurement.point, []).append(measurement)

    def rows(self, device: Device, hashes: Mapping[Any, str]) -> list[Row]:
        """A row a point, of the place that has most of its rounds, the first one of several."""
        homes: dict[Point, Place] = {}
        for place, measured in self.at.items():
            for point, rounds in measured.items():
                if point not in homes or len(rounds) > len(self.at[homes[point]][point]):
                    homes[point] = place
        speeds = device_speeds(self.at)
        on_host = Counter(host for host, _slot, _uuid in self.at if host)
        rows: dict[PointKey, Row] = {}
        for place, measured in self.at.items():
            others = on_host[place[0]] - 1 if device.backend == "cpu" else 0
            note = f"other workers on its CPU, which disturb it: {others}" if others > 0 else None
            opened, copy_gbytes_per_s = self.devices.get(place, device), self.copies.get(place)
            for row in build_rows(measured, opened, hashes, copy_gbytes_per_s):
                if homes[self._points[row.key]] == place:
                    rows[row.key] = replace(
                        row,
                        percent_of_devices=speeds.get(place),
                        reason="; ".join(filter(None, (row.reason, note))) or None,
                    )
        return [rows[key] for key in self._points if key in rows]


def device_speeds(at: Mapping[Place, Mapping[Point, Sequence[Measurement]]]) -> dict[Place, float]:
    """Speed of each place relative to the median one, in percent, where several measured a point.

    The median over those points; a place without any has none.
    """
    times_us: defaultdict[Point, dict[Place, float]] = defaultdict(dict)
    for place, measured in at.items():
        for point, rounds in measured.items():
            if rounds and all(taken.series for taken in rounds):
                medians = [taken.series.median_us for taken in rounds if taken.series]
                times_us[point][place] = statistics.median(medians)
    ratios: defaultdict[Place, list[float]] = defaultdict(list)
    for by_place in times_us.values():
        if len(by_place) > 1:
            middle_us = statistics.median(by_place.values())
            for place, time_us in by_place.items():
                ratios[place].append(middle_us / time_us)
    return {place: 100 * statistics.median(of_place) for place, of_place in ratios.items()}


def shares(points: Sequence[Point], count: int) -> list[list[Point]]:
    """Points dealt to so many shares, or as many as there are kernels.

    All sizes of a compiled kernel go together, so that it is compiled once. The costs of a kernel's
    tiles fall or rise steeply along their list, so the shares take turns at being first.
    """
    kernels: dict[tuple[Any, ...], list[Point]] = {}
    for point in points:
        kernels.setdefault((point.variant, point.tile, point.problem.dtype), []).append(point)
    count = max(1, min(count, len(kernels)))
    dealt: list[list[Point]] = [[] for _ in range(count)]
    for place, of_kernel in enumerate(kernels.values()):
        dealt[_turn(place, count)] += of_kernel
    return [share for share in dealt if share]


def _turn(place: int, count: int) -> int:
    """Whose turn it is: the sum of the digits of `place` to the base `count`, modulo `count`.

    For two it is the Thue-Morse sequence: what comes first falls to each as often as what comes
    next. Over count³ turns all get the same of costs that are a quadratic function of `place`.
    """
    digits = 0
    while place:
        place, digit = divmod(place, max(count, 2))
        digits += digit
    return digits % count


def common_points(points: Sequence[Point]) -> list[Point]:
    """What every worker measures: the baselines; without any, a few points."""
    baselines = {point.variant.baseline for point in points} - {""}
    found = [p for p in points if {p.variant.name, p.variant.tunes} & baselines]
    return found or list(points[:: max(1, len(points) // COMMON)][:COMMON])


def _shares(
    sweep: Sweep, unfinished: Sequence[Point], points: Sequence[Point], first: Member, workers: int
) -> list[Share]:
    """What the workers are sent: at least a share for each, as far as there are kernels."""
    common = common_points(points)
    compared = {_problem(point) for point in unfinished if point not in common}
    alone = [p for p in unfinished if p not in common or _problem(p) not in compared]
    expected_s = estimate(unfinished, first.device, sweep.timing).expected_s
    count = workers * max(1, math.ceil(expected_s / workers / SHARE_S))
    dealt = shares(alone, count)
    timing, budget_s = sweep.timing, sweep.timing.budget_s
    if budget_s is not None:  # of the workers, each of which has so many shares
        timing = replace(timing, budget_s=budget_s * workers / max(len(dealt), workers))
    kernels = sweep.kernels and sweep.kernels.resolve()
    sent = replace(sweep, timing=timing, kernels=kernels, output=None, samples=None)
    topic = f"gpubench-{token_hex(8)}"
    found = []
    for share in dealt:
        problems = {_problem(point) for point in share} & compared
        baselines = [point for point in common if _problem(point) in problems]
        keys = frozenset(point.key for point in (*share, *baselines))
        found.append(Share(sent, keys, first.kind, topic))
    return found


def _measure(
    to_do: Sequence[Share], client: Client, known: _Known, watcher: Watcher, rounds: int
) -> None:
    """Have the workers measure the shares; returns when all have been."""
    inbox: SimpleQueue[Any] = SimpleQueue()
    running: dict[Future, Share] = {}
    failed: set[str] = set()
    visits = rounds * len(set().union(*(share.keys for share in to_do)))
    started = quiet_s = perf_counter()
    received = 0

    def submit(share: Share, workers: list[str] | None = None) -> None:
        rather = {"workers": workers, "allow_other_workers": True} if workers else {}
        future = client.submit(measure_share, share, pure=False, **rather)
        running[future] = share
        future.add_done_callback(inbox.put)

    def receive(line: bytes) -> None:
        nonlocal received
        if (measurement := known.read(line)) is None:
            return
        left = max(0, visits - received)
        left_s = (perf_counter() - started) / received * left if received else 0.0
        watcher.measuring(Visit(point=measurement.point, visits_left=left, left_s=left_s))
        watcher.measured(measurement)
        received += 1

    topic = to_do[0].topic
    client.subscribe_topic(topic, lambda event: inbox.put(event[1]))
    try:
        for share in to_do:
            submit(share)
        while running:
            try:
                arrived = inbox.get(timeout=1)
            except Empty:
                quiet_s = _require_workers(client, quiet_s)
                continue
            if isinstance(arrived, bytes):
                receive(arrived)
                continue
            share, done = running.pop(arrived), _result(arrived)
            for line in done.lines:  # those that no event brought
                receive(line)
            if done.error:
                failed.add(done.address)
                others = [address for address in present(client) if address not in failed]
                if not others:
                    raise done.error
                submit(share, others)
            known.finished(done)
    finally:
        cancel(client, running)


def _result(future: Future) -> Done:
    """What a share came to. Raises DeviceUnavailableError where Dask gave it up."""
    try:
        done: Done = future.result()
    except Exception as error:  # of Dask: the worker died with it again and again
        what = str(error).partition("\n")[0] or type(error).__name__
        raise DeviceUnavailableError(
            f"a worker did not finish its points: {what}; --resume continues with the others"
        ) from error
    return done


def _require_workers(client: Client, quiet_s: float) -> float:
    """When workers were last there. Raises DeviceUnavailableError if that is too long ago."""
    now_s = perf_counter()
    if present(client):
        return now_s
    if client.status in {"closed", "closing"} or now_s - quiet_s > ALONE_S:
        raise DeviceUnavailableError("no worker is left; --resume continues when there are some")
    return quiet_s


def _place(measurement: Measurement) -> Place:
    return measurement.hostname, measurement.slot, measurement.device_uuid


def _devices(found: Mapping[str, Member]) -> str:
    return f"{len(found)} devices" if len(found) > 1 else "1 device"


def _problem(point: Point) -> PointKey:
    """Points that agree in it may be compared."""
    return point.key._replace(variant="", tile="")
