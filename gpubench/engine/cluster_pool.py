"""Shares a job among the workers of a Dask cluster, whose devices are all of one kind.

The unit of work is a share. A share has some points with all their rounds, and the baselines with
which these points are compared. If a worker dies, Dask gives the worker's share to another worker.
A worker sends each measurement immediately.
"""

from __future__ import annotations

import math
import platform
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from queue import Empty, SimpleQueue
from secrets import token_hex
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from gpubench.engine.cluster import (
    ANSWER_S,
    Member,
    cancel,
    members,
    present,
    require_one_kind,
    within,
)
from gpubench.engine.measurements import Measurements, Place
from gpubench.engine.pool import Keep, Watcher, local_pool
from gpubench.engine.prepare import Job, prepare
from gpubench.errors import GpubenchError, PeerLostError, UsageError, first_line
from gpubench.grouping import grouped
from gpubench.model import Device, Measurement, Point, PointKey
from gpubench.plan.schedule import Strategy, Visit
from gpubench.plan.sweep import Sweep
from gpubench.results.provenance import package_version
from gpubench.results.result_file import decode_line, encode_line
from gpubench.text import counted

if TYPE_CHECKING:
    from distributed import Client, Future

SHARE_S = 60.0
"""Expected time of a share, if a sweep is long enough for several shares per worker. If a worker
dies, its share is measured again. At the end of a sweep, the other workers wait for the last worker
at most about this time."""

NO_WORKER_LIMIT_S = 30.0
"""Time without any worker after which a sweep ends. The sweep can be resumed."""

CONTINUES = "the measurements are kept, and --resume continues the sweep, with or without --on"

LOOK_EVERY_S = 1.0  # time between two searches for silent workers

SILENT_S = 25.0
"""Time without a heartbeat after which a worker counts as lost. Dask's workers send a heartbeat
every few seconds, also while they measure."""


class Share(NamedTuple):
    """A request to a worker. The worker plans the sweep, and measures the points of `keys`."""

    sweep: Sweep
    strategy: Strategy
    keys: frozenset[PointKey]
    kind: tuple[str, ...]  # the `Member.kind` of the job's devices
    topic: str  # the topic of the Dask events that deliver the measurements
    earlier: tuple[bytes, ...] = ()
    """Earlier measurements of these points, if a race is continued. A race continues only at the
    place (`Place`) where it began."""


class ShareResult(NamedTuple):
    """The answer that a worker returns for a share, also if an error ended the share."""

    address: str
    lines: list[bytes]  # all measurements, as `encode_line` writes them
    device: Device | None = None  # the worker's device, with its measured rates
    spent_s: Mapping[str, float] = {}
    endings: Mapping[PointKey, str] = {}
    error: GpubenchError | None = None


# ---- in a worker


class _UntilCancelled(Watcher):
    """Ends the measurement of a share that the scheduler has cancelled."""

    def __init__(self, worker: Any) -> None:
        self._worker, self._task = worker, worker.get_current_task()

    def measuring(self, _visit: Visit) -> None:
        task = self._worker.state.tasks.get(self._task)
        if task is None or task.state != "executing":
            raise KeyboardInterrupt


def measure_share(share: Share) -> ShareResult:
    """Measure a share in this Dask worker.

    An error is returned in the result and not raised, because another worker may succeed.
    """
    from distributed import get_worker

    worker = get_worker()
    sweep, name = share.sweep, str(worker.name)
    lines: list[bytes] = []
    try:
        with local_pool(sweep.device, sweep.timer, name, sweep.kernels) as pool:
            member = Member(name, platform.node(), pool.device, package_version()[0])
            if member.kind != share.kind:
                raise UsageError(
                    f"{member.label} joined with another kind of device, driver or gpubench"
                )
            job = prepare(
                sweep,
                pool.device,
                keep=lambda point: point.key in share.keys,
                strategy=share.strategy,
            )
            measurements = Measurements(job)
            for line in share.earlier:
                measurements.add(decode_line(line, job.point_of))

            def keep(measurement: Measurement) -> None:
                lines.append(encode_line(measurement))
                worker.log_event(share.topic, lines[-1])

            with suppress(KeyboardInterrupt):  # the share was cancelled
                pool.measure(job, measurements, keep, _UntilCancelled(worker))
            device, spent_s = pool.device_at(pool.place), dict(pool.spent_s)
            return ShareResult(worker.address, lines, device, spent_s, dict(pool.endings))
    except GpubenchError as error:
        return ShareResult(worker.address, lines, error=error)


# ---- in the main process


class ClusterPool:
    """The workers of a Dask cluster. Raises UsageError if their devices are of several kinds."""

    name = "shared"
    context: Mapping[str, str] = {"on": "several devices"}

    def __init__(self, client: Client, device: str) -> None:
        self._client = client
        self._members = members(client, device)
        first = require_one_kind(self._members)
        self.device, self._kind = first.device, first.kind
        self.label = counted(len(self._members), "device")
        labels = ", ".join(member.label for member in self._members.values())
        self.notices: tuple[str, ...] = (f"shared among {self.label}: {labels}",)
        self._devices: dict[Place, Device] = {}
        self._wall_s = 0.0
        self._spent_s: defaultdict[str, float] = defaultdict(float)
        self.endings: dict[PointKey, str] = {}

    @property
    def spent_s(self) -> Mapping[str, float]:
        """Wall time, in seconds, that a device spent in each phase of the last job, on average.

        The phase `waiting` is the rest of the job's wall time. A device waits while it starts,
        until it gets a share, and at the end until all other devices are done.
        """
        workers = len(self._members)
        phases = {name: total_s / workers for name, total_s in self._spent_s.items()}
        return {**phases, "waiting": max(0.0, self._wall_s - sum(phases.values()))}

    def device_at(self, place: Place) -> Device:
        """Return a place's device, with its measured rates, or else the first device."""
        return self._devices.get(place, self.device)

    def renew(self) -> None:
        """Do nothing, because each share is measured in a new process."""

    def measure(self, job: Job, measurements: Measurements, keep: Keep, watcher: Watcher) -> None:
        """Divide the job among the workers. Raises PeerLostError if no worker is left."""
        started = perf_counter()
        self._wall_s = 0.0
        self._spent_s.clear()
        self.endings = {}
        unfinished = [point for point in job.points if not measurements.is_finished(point)]
        rounds, workers = job.sweep.timing.rounds, len(self._members)
        foreseen = job.forecast(unfinished[::workers])
        watcher.planned(job, self, len(unfinished) * rounds, foreseen)
        try:
            if unfinished:
                shares = share_out(job, unfinished, workers, self._kind)
                if job.strategy.is_race:
                    shares = [_continued(share, measurements) for share in shares]
                self._collect(shares, job, measurements, keep, watcher)
        finally:
            self._wall_s = perf_counter() - started

    def _collect(
        self,
        shares: Sequence[Share],
        job: Job,
        measurements: Measurements,
        keep: Keep,
        watcher: Watcher,
    ) -> None:
        """Submit the shares, and keep the new measurements until all shares are done."""
        client = self._client
        inbox: SimpleQueue[Any] = SimpleQueue()
        running: dict[Future, Share] = {}
        alive = _Alive(client)
        keys = set().union(*(share.keys for share in shares))
        visits, received = job.sweep.timing.rounds * len(keys), 0
        started = perf_counter()

        def submit(share: Share, workers: list[str] | None = None) -> None:
            future = client.submit(measure_share, share, pure=False, workers=workers)
            running[future] = share
            future.add_done_callback(inbox.put)

        def receive(line: Any) -> None:
            nonlocal received
            measurement = _measurement(line, job)
            if not measurements.is_new(measurement):
                return
            left = max(1, visits - received)  # a share that is measured again adds visits
            left_s = (perf_counter() - started) / received * left if received else 0.0
            watcher.measuring(Visit(point=measurement.point, visits_left=left, left_s=left_s))
            received += 1
            keep(measurement)
            measurements.add(measurement)
            watcher.measured(measurement)

        client.subscribe_topic(shares[0].topic, lambda event: inbox.put((event[1],)))
        try:
            for share in shares:
                submit(share)
            while running:
                if not alive.left_s:  # also while other workers send measurements
                    silent = alive.newly_silent()
                    for future in alive.given_to(silent, running) if silent else ():
                        submit(running.pop(future), alive.without(silent))
                        cancel(client, [future])
                try:
                    arrived = inbox.get(timeout=alive.left_s)
                except Empty:
                    continue
                if isinstance(arrived, tuple):
                    receive(*arrived)
                    continue
                if arrived not in running:  # another worker got the share of a silent worker
                    continue
                share, result = running.pop(arrived), _result(arrived)
                for line in result.lines:  # measurements that no event delivered
                    receive(line)
                if result.error:
                    if not (remaining := alive.without({result.address})):
                        raise result.error
                    submit(share, remaining)
                self._remember(result, job)
        finally:
            cancel(client, running)

    def _remember(self, result: ShareResult, job: Job) -> None:
        """Keep a share's device, the time of each phase, and the reasons why races ended."""
        self.endings |= result.endings
        for name, seconds in result.spent_s.items():
            self._spent_s[name] += seconds
        if result.lines and result.device:
            place = Place.of(decode_line(result.lines[-1], job.point_of))
            self._devices[place] = result.device


def share_out(
    job: Job, unfinished: Sequence[Point], workers: int, kind: tuple[str, ...]
) -> list[Share]:
    """Divide the points into shares, with at least one share for each worker.

    A unit is a group of points that must be measured at the same place (`Strategy.unit`). If there
    are fewer units than workers, each unit is a share.
    """
    sweep, strategy, timing = job.sweep, job.strategy, job.sweep.timing
    common = strategy.common(job.points)
    compared = {point.problem_key for point in unfinished if point not in common}
    dealt_points = [p for p in unfinished if p not in common or p.problem_key not in compared]
    expected_s = job.forecast(unfinished).expected_s
    count = workers * max(1, math.ceil(expected_s / workers / SHARE_S))
    dealt = deal(dealt_points, count, strategy)
    if timing.budget_s is not None:  # a worker's budget is divided among its shares
        budget_s = timing.budget_s * workers / max(len(dealt), workers)
        timing = replace(timing, budget_s=budget_s)
    kernels = sweep.kernels and sweep.kernels.resolve()
    sent = replace(sweep, timing=timing, kernels=kernels, output=None, samples=None)
    topic = f"gpubench-{token_hex(8)}"
    shares = []
    for points in dealt:
        problems = {point.problem_key for point in points} & compared
        baselines = [point for point in common if point.problem_key in problems]
        keys = frozenset(point.key for point in (*points, *baselines))
        shares.append(Share(sent, strategy, keys, kind, topic))
    return shares


def deal(points: Sequence[Point], count: int, strategy: Strategy) -> list[list[Point]]:
    """Divide points into at most `count` shares. All points of a unit go into the same share.

    The units are dealt in turns: in each turn, every share gets one unit. The points of a kernel
    are listed by tile, and their costs fall or rise steeply along the list. So every second turn
    has the opposite order, and no share always gets the first unit of a turn.
    """
    units = list(grouped(points, strategy.unit).values())
    count = max(1, min(count, len(units)))
    dealt: list[list[Point]] = [[] for _ in range(count)]
    for index, unit in enumerate(units):
        turn, place = divmod(index, count)
        dealt[place if turn % 2 == 0 else count - 1 - place] += unit
    return dealt


def _continued(share: Share, measurements: Measurements) -> Share:
    """Return a copy of a share that has the earlier measurements of the share's races."""
    units = {key._replace(tile="") for key in share.keys}
    earlier = (
        encode_line(measurement)
        for by_point in measurements.by_place.values()
        for point, rounds in by_point.items()
        if point.key._replace(tile="") in units
        for measurement in rounds
    )
    return share._replace(earlier=tuple(earlier))


def _measurement(line: Any, job: Job) -> Measurement:
    """Decode a measurement that a worker sent. Raises PeerLostError if the data are invalid."""
    try:
        return decode_line(line, job.point_of)
    except (ValueError, TypeError) as error:
        raise PeerLostError(
            f"a worker sent data that is not a measurement: {first_line(error)}; {CONTINUES}"
        ) from None


def _result(future: Future) -> ShareResult:
    """Return the result of a share. Raises PeerLostError if its workers died."""
    try:
        result: ShareResult = future.result()
    except Exception as error:  # Dask's error: several workers died while they measured the share
        raise PeerLostError(
            f"a worker did not finish its points: {first_line(error)}; {CONTINUES}"
        ) from error
    return result


class _Alive:
    """Finds workers that no longer send heartbeats. Raises PeerLostError if no worker is left."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._signs: dict[str, tuple[float, float]] = {}
        """Two times of each worker's last heartbeat. The first time is by the scheduler's clock.
        The second time is by this process's clock, when this process noticed the heartbeat."""

        self._silent: set[str] = set()
        self._failed: set[str] = set()
        self._seen_s = self._looked_s = perf_counter()

    @property
    def left_s(self) -> float:
        """Time in seconds until the next search for silent workers, or 0 if the search is due."""
        return max(0.0, self._looked_s + LOOK_EVERY_S - perf_counter())

    def newly_silent(self) -> set[str]:
        """Return the workers that became silent since the last call."""
        now_s = perf_counter()
        try:
            workers = present(self._client)
        except PeerLostError as error:
            raise PeerLostError(f"{error}; {CONTINUES}") from None
        for address, facts in workers.items():
            sign = facts["last_seen"]
            if self._signs.get(address, (None,))[0] != sign:
                self._signs[address] = sign, now_s
                self._silent.discard(address)
        late = {x for x in workers if now_s - self._signs[x][1] > SILENT_S} - self._silent
        self._silent |= late
        if workers.keys() - self._silent:
            self._seen_s = now_s
        elif late:
            raise PeerLostError(
                f"worker {min(late)} has been silent for {SILENT_S:g} s, and no other worker is "
                f"left; {CONTINUES}"
            )
        elif self._client.status in {"closed", "closing"} or (
            now_s - self._seen_s > NO_WORKER_LIMIT_S
        ):
            raise PeerLostError(f"no worker is left; {CONTINUES}")
        self._looked_s = perf_counter()  # the scheduler may have answered slowly
        return late

    def given_to(self, workers: Collection[str], futures: Collection[Future]) -> list[Future]:
        """Return the futures that the scheduler gave to these workers."""
        processing = within(ANSWER_S, "the scheduler", self._client.processing)
        keys = {key for worker in workers for key in processing.get(worker, ())}
        return [future for future in futures if future.key in keys]

    def without(self, failed: set[str]) -> list[str]:
        """Record failed workers. Return the workers that have not failed and are not silent."""
        self._failed |= failed
        return [x for x in present(self._client) if x not in self._failed | self._silent]
